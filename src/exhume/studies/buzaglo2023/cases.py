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
from exhume.core.errors import ExhumeError
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
    "precision": "tf32",
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
    """Measure every case of every plan with every seed; cases that differ in their label alone are measured once.

    An oracle repeats the attack with the settings of each of its trials, and keeps the result that recovered most.
    """
    wanted = {
        name: [(case, seed) for case in plan.cases for seed in range(run.seed, run.seed + plan.seeds)]
        for name, plan in plans.items()
    }
    everything = [one for part in wanted.values() for one in part]
    run.cells = len({_describe(*one) for one in everything})
    measured = _measure_once(everything, run)
    rivals = {
        _describe(case, seed): [(rival, seed) for rival in _rivals(case, measured[_describe(case, seed)]["trials"])]
        for case, seed in everything
        if case.oracle
    }
    measured |= _measure_once([rival for part in rivals.values() for rival in part], run)

    def row_of(case: Case, seed: int) -> dict[str, Any]:
        row = measured[_describe(case, seed)]
        if case.oracle:
            rows = [measured[_describe(*rival)] for rival in rivals[_describe(case, seed)]]
            row = max(rows, key=lambda one: int(one["recovered"]))
        kept = {key: value for key, value in row.items() if key != "trials"}
        return kept | {"label": case.label, "oracle": case.oracle}

    return {name: [row_of(*one) for one in part] for name, part in wanted.items()}


def _measure_once(cases: Sequence[tuple[Case, int]], run: StudyRun) -> dict[str, dict[str, Any]]:
    """Measure cases with their seeds, and return the cells by what they measure."""
    unique = {_describe(case, seed): (case, seed) for case, seed in cases}
    cells = [
        SharedCell(
            name=f"final-weights-{case.source}-{case.size}-{seed}",
            about=about,
            measure=functools.partial(measure_case, case, seed),
            needed=(*COLUMNS, "trials"),
            cost=case.size * case.width,
        )
        for about, (case, seed) in unique.items()
    ]
    return dict(zip(unique, measure_cells(run, cells), strict=True))


def _describe(case: Case, seed: int) -> str:
    """Return everything that a measurement depends on; the label and the choice of an oracle come afterwards."""
    values = to_json_value(asdict(replace(case, label="", oracle=False)))
    return json.dumps({"final weights": values, "seed": seed}, sort_keys=True)


def _rivals(case: Case, trials: Sequence[dict[str, Any]]) -> list[Case]:
    """Return a case for each trial of another one, with the settings of that trial."""
    pinned = [{name: (value, value) for name, value in trial["settings"].items()} for trial in trials]
    return [replace(case, settings=case.settings | {"trials": 1} | one) for one in pinned]


def measure_case(case: Case, seed: int, run: StudyRun) -> dict[str, Any]:
    """Train, attack the final weights, and count recovered images beside the null.

    The seconds of an attack are those of a process that may share its device with others.
    """
    data = case.draw(seed)
    victim = train_case(case, data, seed, run)
    report = kkt_report(victim, data)
    found = attack_final_weights(case, victim, seed, run)
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
        "training_seconds": victim.result["seconds"],
        "training_loss": victim.result["loss"],
        "kkt_residual": report.residual,
        "kkt_margin_residual": report.margin_residual,
        "kkt_layers": report.layers,
        "trials": found.diagnostics.get("trials", []),
    } | choose_pictures(found, data)


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


def attack_final_weights(case: Case, victim: Victim, seed: int, run: StudyRun) -> Reconstruction:
    """Run the attack of a case on the final weights alone."""
    return run.attack(case.build_attack(), replace(victim.view(), initial=None), seed=seed)


def choose_pictures(found: Reconstruction, data: Dataset) -> dict[str, Tensor]:
    """Return the candidates that match training images best, and those images, for the gallery."""
    best, place = best_matches(found.inputs, data.train.inputs)
    first = best.argsort(descending=True)[:MOST_PICTURES]
    return {"shown": found.inputs[place[first]], "originals": data.train.inputs[first]}
