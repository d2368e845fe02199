"""Defences compared on the same data, networks and attacks, with the accuracy that each one costs."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from exhume.attacks import Attack, GateCertificate, MaxMargin, Stationarity, WeightDifference
from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError, Refusal
from exhume.distillation import KIP, RKIP, Distillation, RKIPFinite, distil
from exhume.evaluation import evaluate, find_copies
from exhume.evaluation.verdict import BEYOND_CHANCE
from exhume.kernels import InfiniteNTK
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, Reconstruction, Split
from exhume.studies.metrics import FPR, network_accuracy
from exhume.studies.ours.defence_report import advice, defence_figure, defence_rows
from exhume.studies.study import Study, StudyResult, StudyRun, slug
from exhume.studies.tasks import load_task
from exhume.training.private import PrivateTraining, train_privately
from exhume.training.release import add_noise, drop_optimiser_state, quantise_weights, round_weights


@dataclass(frozen=True, kw_only=True)
class DefenceSettings:
    """Settings of the study."""

    source: str
    size: int
    width: int
    strangers: int
    """Number of held-out examples taken from the test set, to measure the false-positive rate."""
    distilled: int
    """Number of distilled images."""
    distil_steps: int = 1500
    min_distance: float = 1.0
    """Least distance from training images, of the distillation that keeps away from them."""
    training_steps: int = 20_000
    search_steps: int = 600
    """Number of steps of the attacks by descent."""
    rounds: int = 30
    """Number of rounds of the certificate."""
    trials: int = 4
    """Number of trials of the attacks on final weights alone."""
    private_steps: int = 50
    epsilons: tuple[float, ...] = (1.0, 3.0, 8.0, 50.0)
    noises: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    decays: tuple[float, ...] = (1e-3, 1e-2)
    only: tuple[str, ...] | None = None
    """Names of the defences to measure; None: all."""


@dataclass(frozen=True, kw_only=True)
class Released:
    """What an owner releases, and what the network was trained on."""

    view: AttackerView
    trained_on: Dataset
    about: Mapping[str, Any] = field(default_factory=dict)


Defence = Callable[[DefenceSettings, Dataset, StudyRun], Released]


def train_undefended(
    settings: DefenceSettings, data: Dataset, run: StudyRun, model: MLP | None = None, **training: Any
) -> Released:
    """Train as usual, with the settings that ``training`` changes."""
    limits = {"steps": settings.training_steps, "stop_loss": 1e-8}
    victim = run.train(data, model=model or MLP(width=settings.width), **limits | training)
    return Released(view=victim.view(), trained_on=data, about={"loss": victim.result["loss"]})


def train_otherwise(**training: Any) -> Defence:
    """Return the defence that trains with other settings."""
    return lambda settings, data, run: train_undefended(settings, data, run, **training)


def train_on_distilled(method: Distillation) -> Defence:
    """Return the defence that trains on a distilled set only."""

    def defend(settings: DefenceSettings, data: Dataset, run: StudyRun) -> Released:
        made = distil(data, method, seed=run.seed, device=run.device, progress=run.progress)
        copies = find_copies(made, data)
        about = {
            "copies": copies.copied,
            "shown": len(copies.shown),
            "betrayed": copies.betrayed,
            "sentence": copies.sentence,
        }
        return replace(train_undefended(settings, made, run), about=about)

    return defend


def train_with_privacy(epsilon: float) -> Defence:
    """Return the defence that trains with DP-SGD under a privacy budget."""

    def defend(settings: DefenceSettings, data: Dataset, run: StudyRun) -> Released:
        budget = PrivateTraining(epsilon=epsilon, steps=settings.private_steps, seed=run.seed)
        victim = train_privately(
            data, budget, model=MLP(width=settings.width), device=run.device, progress=run.progress
        )
        return Released(view=victim.view(), trained_on=data, about={"noise": victim.training["noise_multiplier"]})

    return defend


def release_changed(change: Callable[[AttackerView], AttackerView]) -> Defence:
    """Return the defence that trains as usual and changes the released weights."""

    def defend(settings: DefenceSettings, data: Dataset, run: StudyRun) -> Released:
        released = train_undefended(settings, data, run)
        return replace(released, view=change(released.view))

    return defend


def release_checkpoint(change: Callable[[AttackerView], AttackerView]) -> Defence:
    """Return the release of a checkpoint after training with AdamW, initial weights unknown."""

    def defend(settings: DefenceSettings, data: Dataset, run: StudyRun) -> Released:
        training: dict[str, Any] = {"optimiser": "adamw", "lr": 1e-4, "batch_size": 10, "stop_loss": 1e-3}
        training["keep_optimiser_state"] = True
        released = train_undefended(settings, data, run, **training)
        return replace(released, view=change(replace(released.view, initial=None)))

    return defend


def make_defences(settings: DefenceSettings) -> dict[str, Defence]:
    """Return every defence by name."""
    kernel = InfiniteNTK.of(MLP(width=settings.width))
    size, steps = settings.distilled, settings.distil_steps
    smooth = {name: MLP(width=settings.width, activation=name) for name in ("softplus", "gelu")}
    return {
        "none": train_undefended,
        "KIP": train_on_distilled(KIP(size=size, kernel=kernel, steps=steps)),
        "RKIP": train_on_distilled(RKIP(size=size, kernel=kernel, steps=steps)),
        "RKIP 5% noise": train_on_distilled(RKIP(size=size, kernel=kernel, steps=steps, noise=0.05)),
        "RKIP at a distance": train_on_distilled(
            RKIP(size=size, kernel=kernel, steps=steps, min_distance=settings.min_distance)
        ),
        "RKIP-finite": train_on_distilled(
            RKIPFinite(
                size=size,
                model=MLP(width=settings.width),
                attack=WeightDifference(balance=0.0, steps=settings.search_steps),
            )
        ),
        **{f"DP-SGD ε={epsilon:g}": train_with_privacy(epsilon) for epsilon in settings.epsilons},
        **{f"weight decay {decay:g}": train_otherwise(weight_decay=decay) for decay in settings.decays},
        **{name: train_otherwise(model=model) for name, model in smooth.items()},
        "Adam": train_otherwise(optimiser="adam"),
        "checkpoint with state": release_checkpoint(lambda view: view),
        "state dropped": release_checkpoint(drop_optimiser_state),
        **{f"noise {std:g}": release_changed(partial(_add_noise, std=std)) for std in settings.noises},
        "float16": release_changed(lambda view: round_weights(view, torch.float16)),
        "bfloat16": release_changed(lambda view: round_weights(view, torch.bfloat16)),
        "int8": release_changed(quantise_weights),
    }


def _add_noise(view: AttackerView, std: float) -> AttackerView:
    return add_noise(view, std, torch.Generator().manual_seed(0))


def make_attacks(settings: DefenceSettings) -> dict[str, Attack]:
    """Return every attack by name; each is tried on every defence, and refuses if it does not apply."""
    return {
        "gate certificate": GateCertificate(rounds=settings.rounds, patience=6),
        "weight difference": WeightDifference(steps=settings.search_steps),
        "stationarity": Stationarity(trials=settings.trials, trial_steps=100, restarts=2, steps=settings.search_steps),
        "max margin": MaxMargin(trials=settings.trials, trial_steps=100, restarts=2, steps=settings.search_steps),
    }


def load_data(settings: DefenceSettings, seed: int) -> Dataset:
    """Load the data, with enough held-out examples to resolve a false-positive rate of one percent."""
    data = load_task(settings.source, settings.size, seed, None)
    test, count = data.test, settings.strangers
    assert test is not None
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
    more, rest = order[:count], order[count:]
    holdout = Split(
        inputs=torch.cat([data.holdout.inputs, test.inputs[more]]),
        labels=torch.cat([data.holdout.labels, test.labels[more]]),
    )
    return replace(data, holdout=holdout, test=test.take(rest))


def measure(settings: DefenceSettings, run: StudyRun) -> StudyResult:
    """Defend, attack and measure; one cell per defence."""
    chosen = {n: d for n, d in make_defences(settings).items() if settings.only is None or n in settings.only}
    run.cells = len(chosen)
    data = load_data(settings, run.seed)
    results = {
        name: run.cell(slug(name), functools.partial(_measure_defence, defence, settings, data, run))
        for name, defence in chosen.items()
    }
    numbers = {"size": settings.size, "held_out": len(data.holdout), "defences": results}
    return StudyResult(
        numbers=numbers,
        figures={"defences": defence_figure(results, settings.size)},
        table=(("defence", "accuracy", "recovered", "certified", "own set certified", "by"), defence_rows(results)),
        summary=advice(results, settings.size),
    )


def _measure_defence(defence: Defence, settings: DefenceSettings, data: Dataset, run: StudyRun) -> dict[str, Any]:
    """Return the accuracy with a defence, and what every applicable attack recovers."""
    try:
        released = defence(settings, data, run)
    except ExhumeError as error:  # Opacus may not be installed; the other defences do not need it
        return {"skipped": str(error)}
    assert data.test is not None
    view = released.view
    found: dict[str, Any] = {
        "accuracy": network_accuracy(view.to(resolve_device(run.device)), data.test),
        "about": dict(released.about),
        "attacks": {},
    }
    for name, attack in make_attacks(settings).items():
        found["attacks"][name] = _attack_defended(attack, view, data, released.trained_on, run)
    ran = [result for result in found["attacks"].values() if "refused" not in result]
    beyond_chance = [result for result in ran if result["chance"] < BEYOND_CHANCE]
    return found | {
        "recovered": max((result["recovered"] for result in beyond_chance), default=0),
        "certified": max((result["certified"] for result in ran), default=0),
        "certified_own": max((result["certified_own"] for result in ran), default=0),
    }


def _attack_defended(
    attack: Attack, view: AttackerView, data: Dataset, trained_on: Dataset, run: StudyRun
) -> dict[str, Any]:
    try:
        result = _run_with_size(attack, view, data, run)
    except Refusal as refusal:
        return {"refused": str(refusal)}
    evaluation = evaluate(result, data)
    assert evaluation.relative is not None
    assert evaluation.train is not None
    level = evaluation.relative.level(FPR)
    own = evaluation if trained_on is data else evaluate(result, trained_on)
    return {
        "recovered": level.recovered,
        "chance": level.chance,
        "fpr_bound": level.bound,
        "good": evaluation.train.good,
        "certified": evaluation.certified_examples,
        "certified_own": own.certified_examples,
        "false_certificates": own.false_certificates,
        "seconds": result.seconds,
    }


def _run_with_size(attack: Attack, view: AttackerView, data: Dataset, run: StudyRun) -> Reconstruction:
    """Run an attack; give it the training set size, which owners publish, if the weights do not show it."""
    try:
        return run.attack(attack, view)
    except Refusal:
        if not isinstance(attack, WeightDifference):
            raise
        return run.attack(replace(attack, candidates=3 * len(data.train), within_span=False), view)


STUDIES = (
    Study(
        name="defences",
        presets={
            "smoke": DefenceSettings(
                source="digits", size=8, width=64, strangers=100, distilled=4, distil_steps=20, training_steps=300,
                search_steps=10, rounds=1, trials=1, private_steps=3,
                only=("none", "RKIP", "DP-SGD ε=8", "softplus", "int8"),
            ),
            "cpu": DefenceSettings(source="digits", size=30, width=512, strangers=400, distilled=15),
            "gpu": DefenceSettings(
                source="mnist", size=50, width=1024, strangers=950, distilled=20, min_distance=4.0, training_steps=8000,
                search_steps=800, rounds=10,
            ),
        },
        measure=measure,
    ),
)  # fmt: skip
