"""One training and one attack on its final weights: the unit of work of every study in this package."""

import functools
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.stationarity import Stationarity
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.core.errors import ExhumeError
from exhume.evaluation.evaluate import evaluate
from exhume.models.architecture import Architecture
from exhume.models.convnet import ConvNet
from exhume.records import Dataset, Reconstruction, Victim
from exhume.studies.buzaglo2023.noise_in_span import NoiseInSpan
from exhume.studies.metrics import FPR, best_matches, count_exact, count_similar, relative_ranks
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


def measure_plan(plan: Plan, run: StudyRun, name: str) -> list[dict[str, Any]]:
    """Measure every case with every seed."""
    rows = []
    for number, case in enumerate(plan.cases):
        for seed in range(run.seed, run.seed + plan.seeds):
            work = functools.partial(measure_case, case, seed, run)
            rows.append(run.cell(f"{name}/{number}-{seed}", work, needed=COLUMNS))
    return rows


def measure_case(case: Case, seed: int, run: StudyRun) -> dict[str, Any]:
    """Train, attack the final weights, and count recovered images beside the null."""
    data = case.draw(seed)
    victim = train_case(case, data, seed, run)
    report = kkt_report(victim, data)
    found = attack_final_weights(case, victim, data, seed, run)
    evaluation = evaluate(found, data)
    ranks = relative_ranks(found, data)
    level = ranks.level(FPR)
    similar, similar_null, correlated = count_similar(found, data)
    return {
        "label": case.label,
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
        "oracle": case.oracle,
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


def attack_final_weights(case: Case, victim: Victim, data: Dataset, seed: int, run: StudyRun) -> Reconstruction:
    """Run the attack of a case; an oracle repeats it with the settings of each trial and keeps the best result."""
    view = replace(victim.view(), initial=None)
    attack = case.build_attack()
    found = run.attack(attack, view, seed=seed)
    if not case.oracle:
        return found
    rivals = []
    for trial in found.diagnostics["trials"]:
        pinned = {name: (value, value) for name, value in trial["settings"].items()}
        rivals.append(run.attack(replace(attack, **{"trials": 1, **pinned}), view, seed=seed))
    return max(rivals, key=lambda rival: relative_ranks(rival, data).level(FPR).recovered)


def choose_pictures(found: Reconstruction, data: Dataset) -> dict[str, Tensor]:
    """Return the candidates that match training images best, and those images, for the gallery."""
    best, place = best_matches(found.inputs, data.train.inputs)
    first = best.argsort(descending=True)[:MOST_PICTURES]
    return {"shown": found.inputs[place[first]], "originals": data.train.inputs[first]}
