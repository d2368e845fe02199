"""One training and one attack on its final weights: the unit of work of every study in this package."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.stationarity import Stationarity
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.core.errors import ExhumeError, RecordError
from exhume.core.json_values import to_json_value
from exhume.evaluation.evaluate import evaluate
from exhume.models.architecture import Architecture
from exhume.models.convnet import ConvNet
from exhume.records import Dataset, Reconstruction, Victim
from exhume.studies.buzaglo2023.noise_in_span import NoiseInSpan
from exhume.studies.metrics import FPR, best_matches, count_exact, count_similar, relative_ranks
from exhume.studies.side_by_side import SharedCell, measure_cells
from exhume.studies.study import StudyRun
from exhume.studies.tasks import draw
from exhume.training.kkt import kkt_report
from exhume.training.recipes import small_first_layer, weight_decay_recipe
from exhume.training.settings import LossName

MOST_PICTURES = 20
"""Largest number of images in a gallery."""
AttackName = Literal["max-margin", "stationarity", "tied", "noise"]
ORACLE_COST = 16
"""Attacks that build on one with an oracle, at most."""
LEARNING_RATE_FACTORS = (1.0, 0.3, 0.1, 0.03)
"""Factors of the learning rate, tried in turn until a training does not diverge."""
TINY = {"trials": 2, "trial_steps": 10, "restarts": 2, "steps": 20}
QUICK = {"trials": 4, "trial_steps": 150, "winners": 1, "restarts": 4, "steps": 800}
LARGE = {
    "trials": 16,
    "trial_steps": 250,
    "restarts": 16,
    "steps": 4000,
    "oversampling": 2.0,
    "runs_at_once": 16,
    "precision": "half",
}
ALL_PIXELS: dict[str, Any] = {"within_span": False, "init_std": (1e-4, 0.1), "sharpness": (10.0, 500.0)}
"""The search of the papers: all pixels free, twice as many candidates as training images."""
COLUMNS = {
    "recovered": "recovered at 1 % FPR",
    "recovered_null": "null",
    "similar": "SSIM > 0.4",
    "similar_null": "its null",
    "correlated": "by correlation at 1 % FPR",
    "exact": "exact",
    "exact_null": "exact, held out",
    "certified": "certified",
    "certified_falsely": "falsely",
    "kkt_residual": "KKT residual",
    "residual": "unexplained",
    "attack_seconds": "seconds",
}
"""Keys of a measured case that tables show, and their headings."""
TRAINING_COLUMNS = ("kkt_residual",)
ATTACK_COLUMNS = (*(key for key in COLUMNS if key not in TRAINING_COLUMNS), "trials")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training and one attack on its final weights."""

    label: str
    """Name in the figure."""
    source: str = "mnist"
    classes: str = "all"
    size: int = 20
    shrink: int = 2
    """Side of the square of pixels that are averaged into one; 1: none."""
    strangers: int = 400
    """Number of held-out examples."""
    width: int = 200
    depth: int = 2
    convnet: bool = False
    loss: LossName = "ce"
    weight_decay: float = 0.0
    lr: float = 0.1
    train_steps: int = 3000
    attack: AttackName = "max-margin"
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the attack that differ from its defaults."""
    oracle: bool = False
    """Whether to choose the settings, among the same trials, by looking at the training images. For comparison only."""

    def draw(self, seed: int) -> Dataset:
        """Draw the training set and the hold-out set."""
        return draw(self.source, self.classes, size=self.size, held_out=self.strangers, seed=seed, shrink=self.shrink)

    def build_attack(self) -> Attack:
        """Build the attack."""
        if self.attack == "noise":
            return NoiseInSpan()
        if self.attack == "max-margin":
            return MaxMargin(**self.settings)
        return Stationarity(multiplier="tied" if self.attack == "tied" else "free", **self.settings)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cases of one study."""

    cases: tuple[Case, ...]
    seeds: int = 3
    """Number of draws per case."""


def measure_plans(plans: Mapping[str, Plan], run: StudyRun) -> dict[str, list[dict[str, Any]]]:
    """Measure every case of every plan with every seed; each network is trained once, and each attack runs once.

    An oracle repeats the attack with the settings of each of its trials, and keeps the result that recovered most.
    """
    wanted = {
        name: [(case, seed) for case in plan.cases for seed in range(run.seed, run.seed + plan.seeds)]
        for name, plan in plans.items()
    }
    everything = [one for part in wanted.values() for one in part]
    run.cells = len({_training_of(*one) for one in everything}) + len({_attack_on(*one) for one in everything})
    found = measure_cells(run, [_training_cell(*one) for one in everything])

    def row_of(case: Case, seed: int) -> dict[str, Any]:
        row = found[_attack_on(case, seed)]
        if case.oracle:
            rivals = [found[_attack_on(rival, seed)] for rival in _rivals(case, row["trials"])]
            row = max(rivals, key=lambda one: int(one["recovered"]))
        kept = {key: value for key, value in row.items() if key != "trials"}
        return found[_training_of(case, seed)] | kept | {"label": case.label, "oracle": case.oracle}

    return {name: [row_of(*one) for one in part] for name, part in wanted.items()}


def _training_cell(case: Case, seed: int) -> SharedCell:
    """Return the cell of a training, on which the attack builds."""
    return SharedCell(
        name=f"victim-{case.source}-{case.size}-{seed}",
        about=_training_of(case, seed),
        measure=functools.partial(measure_training, case, seed),
        needed=TRAINING_COLUMNS,
        cost=_cost(case),
        then=lambda found: [_attack_cell(case, seed)],
    )


def _attack_cell(case: Case, seed: int) -> SharedCell:
    """Return the cell of an attack, on which an oracle builds one for each of its trials."""

    def call_for_rivals(found: Mapping[str, Any]) -> list[SharedCell]:
        rivals = _rivals(case, found["trials"]) if case.oracle else []
        return [_attack_cell(rival, seed) for rival in rivals]

    return SharedCell(
        name=f"found-{case.source}-{case.size}-{seed}",
        about=_attack_on(case, seed),
        measure=functools.partial(measure_attack, case, seed),
        needed=ATTACK_COLUMNS,
        cost=_cost(case),
        then=call_for_rivals,
    )


def _cost(case: Case) -> int:
    """Return the relative cost of a case; that of an oracle includes all that builds on it."""
    return case.size * case.width * (ORACLE_COST if case.oracle else 1)


def _attack_on(case: Case, seed: int) -> str:
    """Return everything that an attack depends on; the label and the choice of an oracle come afterwards."""
    values = to_json_value(asdict(replace(case, label="", oracle=False)))
    return json.dumps({"final weights": values, "seed": seed}, sort_keys=True)


def _training_of(case: Case, seed: int) -> str:
    """Return everything that a training depends on."""
    return _attack_on(replace(case, attack="max-margin", settings={}, strangers=0), seed)


def _rivals(case: Case, trials: Sequence[dict[str, Any]]) -> list[Case]:
    """Return a case for each trial of an oracle's attack, with the settings of that trial."""
    if not trials:
        raise ExhumeError("An oracle chooses among trials, and this case has none: set trials above 1.")
    pinned = [{name: (value, value) for name, value in trial["settings"].items()} for trial in trials]
    return [replace(case, oracle=False, settings=case.settings | {"trials": 1} | one) for one in pinned]


def measure_training(case: Case, seed: int, run: StudyRun) -> dict[str, Any]:
    """Train, and measure how far the weights are from a stationary point.

    Seconds, here and below, are those of a process that may share its device with others.
    """
    data = case.draw(seed)
    victim = victim_of(case, data, seed, run)
    report = kkt_report(victim, data)
    return {
        "training_seconds": victim.result["seconds"],
        "training_loss": victim.result["loss"],
        "kkt_residual": report.residual,
        "kkt_margin_residual": report.margin_residual,
        "kkt_layers": report.layers,
    }


def measure_attack(case: Case, seed: int, run: StudyRun) -> dict[str, Any]:
    """Attack the final weights, and count recovered images beside the null."""
    data = case.draw(seed)
    view = replace(victim_of(case, data, seed, run).view(), initial=None)
    found = run.attack(case.build_attack(), view, seed=seed)
    evaluation = evaluate(found, data)
    ranks = relative_ranks(found, data)
    level = ranks.level(FPR)
    similar, similar_null, correlated = count_similar(found, data)
    return {
        "seed": seed,
        "training_size": case.size,
        "recovered": level.recovered,
        "recovered_null": round(level.holdout_recovered * case.size / len(data.holdout)),
        "chance": level.chance,
        "similar": similar,
        "similar_null": similar_null,
        "correlated": correlated,
        "auc": ranks.auc,
        "size_estimate": found.diagnostics.get("training_size_estimate"),
        "residual": min(found.diagnostics["residuals"]),
        "upper_layers": found.diagnostics.get("upper_layers"),
        "exact": count_exact(found, data.train),
        "exact_null": count_exact(found, data.holdout),
        "points_of_edges": len(found.diagnostics.get("edges_met", ())),
        "certified": evaluation.certified,
        "certified_falsely": evaluation.false_certificates,
        "candidates": len(found),
        "attack": found.attack,
        "attack_seconds": found.seconds,
        "trials": found.diagnostics.get("trials", []),
    } | choose_pictures(found, data)


def victim_of(case: Case, data: Dataset, seed: int, run: StudyRun) -> Victim:
    """Return the trained network, from disk where another measurement trained it before."""
    path = run.shared_file("network", _training_of(case, seed))
    try:
        return Victim.load(path)
    except RecordError:
        victim = train_case(case, data, seed, run)
        victim.save(path)
        return victim


def train_case(case: Case, data: Dataset, seed: int, run: StudyRun) -> Victim:
    """Train by the papers' recipe, with a smaller learning rate if the training diverges."""
    model: Architecture = small_first_layer(case.width, case.depth)
    if case.convnet:
        model = ConvNet(channels=case.width, depth=1, bias=False)
    for factor in LEARNING_RATE_FACTORS:
        recipe = weight_decay_recipe(
            loss=case.loss,
            weight_decay=case.weight_decay,
            steps=case.train_steps,
            lr=factor * case.lr,
            model=model,
        )
        try:
            return run.train(data, seed=seed, **recipe)
        except ExhumeError as error:
            if "diverged" not in str(error) or factor == LEARNING_RATE_FACTORS[-1]:
                raise
    raise AssertionError("unreachable")


def choose_pictures(found: Reconstruction, data: Dataset) -> dict[str, Tensor]:
    """Return the candidates that match training images best, and those images, for the gallery."""
    best, place = best_matches(found.inputs, data.train.inputs)
    first = best.argsort(descending=True)[:MOST_PICTURES]
    return {"shown": found.inputs[place[first]], "originals": data.train.inputs[first]}
