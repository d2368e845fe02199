"""Defences on one bench: the same data, the same networks, the same attacks, and what each defence costs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from matplotlib.figure import Figure

from exhume.attacks import Attack, GateCertificate, MaxMargin, Stationarity, WeightDifference
from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError, Refusal
from exhume.distillation import KIP, RKIP, Distillation, RKIPFinite, distil
from exhume.evaluation import evaluate, find_copies
from exhume.evaluation.network import accuracy
from exhume.kernels import InfiniteNTK
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, Split
from exhume.report.figures import GRID, INK, MUTED
from exhume.studies.drawing import PALETTE
from exhume.studies.loo2023.distilled import load_task, slug
from exhume.studies.released import noisy, quantised, rounded
from exhume.studies.study import Bench, Findings, Study
from exhume.training.private import PrivateTraining, train_privately
from exhume.training.trainer import train

FPR = 0.01
BEYOND_CHANCE = 0.01
"""Recoveries whose odds by chance are below this count as recoveries."""


@dataclass(frozen=True, kw_only=True)
class DefenceBench:
    """Settings of the bench."""

    source: str
    size: int
    width: int
    strangers: int
    """How many held-out examples the false-positive rate is measured on, taken from the test set."""
    distilled: int
    distil_steps: int = 1500
    min_distance: float = 1.0
    """Of the variant that keeps away from training images."""
    training_steps: int = 20_000
    search_steps: int = 600
    """Of the weight-difference attack."""
    rounds: int = 30
    """Of the certificate's search."""
    trials: int = 4
    """Of the attack on final weights alone."""
    private_steps: int = 50
    epsilons: tuple[float, ...] = (1.0, 3.0, 8.0, 50.0)
    noises: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    decays: tuple[float, ...] = (1e-3, 1e-2)
    only: tuple[str, ...] | None = None
    """Which defences to measure, by name; None: all."""


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a defended owner releases, and what the network was really trained on."""

    view: AttackerView
    trained_on: Dataset
    about: Mapping[str, Any] = field(default_factory=dict)


Defence = Callable[[DefenceBench, Dataset, Bench], Released]


def trained(settings: DefenceBench, data: Dataset, bench: Bench, model: MLP | None = None, **training: Any) -> Released:
    """Train as usual, but for ``training``."""
    victim = train(
        data, model=model or MLP(width=settings.width), device=bench.device, seed=bench.seed, progress=bench.progress,
        **{"steps": settings.training_steps, "stop_loss": 1e-8} | training,
    )  # fmt: skip
    return Released(view=victim.view(), trained_on=data, about={"loss": victim.result["loss"]})


def distilled(method: Distillation) -> Defence:
    """Train on a distilled set only."""

    def defend(settings: DefenceBench, data: Dataset, bench: Bench) -> Released:
        made = distil(data, method, seed=bench.seed, device=bench.device, progress=bench.progress)
        copies = find_copies(made, data)
        about = {
            "copies": copies.copied,
            "shown": len(copies.shown),
            "betrayed": copies.betrayed,
            "sentence": copies.sentence,
        }
        return replace(trained(settings, made, bench), about=about)

    return defend


def private(epsilon: float) -> Defence:
    """Train with DP-SGD under a budget."""

    def defend(settings: DefenceBench, data: Dataset, bench: Bench) -> Released:
        budget = PrivateTraining(epsilon=epsilon, steps=settings.private_steps, seed=bench.seed)
        victim = train_privately(
            data, budget, model=MLP(width=settings.width), device=bench.device, progress=bench.progress
        )
        return Released(view=victim.view(), trained_on=data, about={"noise": victim.training["noise_multiplier"]})

    return defend


def changed(change: Callable[[AttackerView], AttackerView]) -> Defence:
    """Train as usual and release other weights."""

    def defend(settings: DefenceBench, data: Dataset, bench: Bench) -> Released:
        plain = trained(settings, data, bench)
        return replace(plain, view=change(plain.view))

    return defend


def defences(settings: DefenceBench) -> dict[str, Defence]:
    """Return every defence on the bench, by name."""
    kernel = InfiniteNTK.of(MLP(width=settings.width))
    size, steps = settings.distilled, settings.distil_steps
    smooth = {name: MLP(width=settings.width, activation=name) for name in ("softplus", "gelu")}
    return {
        "none": trained,
        "KIP": distilled(KIP(size=size, kernel=kernel, steps=steps)),
        "RKIP": distilled(RKIP(size=size, kernel=kernel, steps=steps)),
        "RKIP 5% noise": distilled(RKIP(size=size, kernel=kernel, steps=steps, noise=0.05)),
        "RKIP at a distance": distilled(
            RKIP(size=size, kernel=kernel, steps=steps, min_distance=settings.min_distance)
        ),
        "RKIP-finite": distilled(
            RKIPFinite(
                size=size,
                model=MLP(width=settings.width),
                attack=WeightDifference(balance=0.0, steps=settings.search_steps),
            )
        ),
        **{f"DP-SGD ε={epsilon:g}": private(epsilon) for epsilon in settings.epsilons},
        **{f"weight decay {decay:g}": _decayed(decay) for decay in settings.decays},
        **{name: _smooth(model) for name, model in smooth.items()},
        "Adam": lambda s, d, b: trained(s, d, b, optimiser="adam"),
        **{f"noise {std:g}": changed(lambda v, std=std: noisy(v, std, 0)) for std in settings.noises},  # type: ignore[misc]
        "float16": changed(lambda view: rounded(view, torch.float16)),
        "bfloat16": changed(lambda view: rounded(view, torch.bfloat16)),
        "int8": changed(quantised),
    }


def _decayed(decay: float) -> Defence:
    return lambda settings, data, bench: trained(settings, data, bench, weight_decay=decay)


def _smooth(model: MLP) -> Defence:
    return lambda settings, data, bench: trained(settings, data, bench, model=model)


def attacks(settings: DefenceBench) -> dict[str, Attack]:
    """Return every attack on the bench; each is tried on every defence, and refuses where it does not apply."""
    return {
        "gate certificate": GateCertificate(rounds=settings.rounds, patience=6),
        "weight difference": WeightDifference(steps=settings.search_steps),
        "stationarity": Stationarity(trials=settings.trials, trial_steps=100, restarts=2, steps=settings.search_steps),
        "max margin": MaxMargin(trials=settings.trials, trial_steps=100, restarts=2, steps=settings.search_steps),
    }


def bench_data(settings: DefenceBench, seed: int) -> Dataset:
    """Load the data, with enough held-out examples to resolve a false-positive rate of one per cent."""
    data = load_task(settings.source, settings.size, seed, None)
    test, count = data.test, settings.strangers
    assert test is not None
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
    more, rest = order[:count], order[count:]
    holdout = Split(
        inputs=torch.cat([data.holdout.inputs, test.inputs[more]]),
        labels=torch.cat([data.holdout.labels, test.labels[more]]),
    )
    return replace(data, holdout=holdout, test=Split(inputs=test.inputs[rest], labels=test.labels[rest]))


def measure(settings: DefenceBench, bench: Bench) -> Findings:
    """Defend, attack, and measure; one cell a defence."""
    everything = {n: d for n, d in defences(settings).items() if settings.only is None or n in settings.only}
    bench.cells = len(everything)
    data = bench_data(settings, bench.seed)
    results = {
        name: bench.cell(slug(name), lambda name=name: _defended(everything[name], settings, data, bench))  # type: ignore[misc]
        for name in everything
    }
    numbers = {"size": settings.size, "held_out": len(data.holdout), "defences": results}
    return Findings(
        numbers=numbers,
        figures={"defences": _figure(results, settings.size)},
        table=(("defence", "accuracy", "recovered", "certified", "own set certified", "by"), _rows(results)),
        summary=advice(results, settings.size),
    )


def _defended(defence: Defence, settings: DefenceBench, data: Dataset, bench: Bench) -> dict[str, Any]:
    """Return a defence's accuracy and what every attack that applies makes of it."""
    try:
        released = defence(settings, data, bench)
    except ExhumeError as error:  # Opacus may not be installed; the rest of the bench can do without it
        return {"skipped": str(error)}
    assert data.test is not None
    view = released.view
    found: dict[str, Any] = {
        "accuracy": 100.0 * accuracy(view.to(resolve_device(bench.device)), data, data.test),
        "about": dict(released.about),
        "attacks": {},
    }
    for name, attack in attacks(settings).items():
        found["attacks"][name] = _attacked(attack, view, data, released.trained_on, bench)
    ran = [result for result in found["attacks"].values() if "refused" not in result]
    surest = [result for result in ran if result["chance"] < BEYOND_CHANCE]
    return found | {
        "recovered": max((result["recovered"] for result in surest), default=0),
        "certified": max((result["certified"] for result in ran), default=0),
        "certified_own": max((result["certified_own"] for result in ran), default=0),
    }


def _attacked(attack: Attack, view: AttackerView, data: Dataset, trained_on: Dataset, bench: Bench) -> dict[str, Any]:
    try:
        result = _sized(attack, view, data, bench)
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


def _sized(attack: Attack, view: AttackerView, data: Dataset, bench: Bench) -> Any:
    """Run an attack; where the weights hide how many inputs there were, tell it, since owners tell such things."""
    try:
        return attack.run(view, seed=bench.seed, device=bench.device, progress=bench.progress)
    except Refusal:
        if not isinstance(attack, WeightDifference):
            raise
        told = replace(attack, candidates=3 * len(data.train), within_subspace=False)
        return told.run(view, seed=bench.seed, device=bench.device, progress=bench.progress)


def _rows(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        if "skipped" in result:
            rows.append((name, "", "", "", "", result["skipped"]))
            continue
        by = [
            a for a, r in result["attacks"].items() if "refused" not in r and r["recovered"] == result["recovered"] > 0
        ]
        counts = (str(result[key]) for key in ("recovered", "certified", "certified_own"))
        rows.append((name, f"{result['accuracy']:.1f}", *counts, ", ".join(by)))
    return rows


def advice(results: Mapping[str, Any], size: int) -> str:
    """Say what follows from the numbers, and no more."""
    measured = {name: result for name, result in results.items() if "skipped" not in result}
    plain = measured.pop("none")
    open_ones = sorted(
        (name for name, result in measured.items() if result["recovered"] > 0.1 * size or result["certified"] > 0),
        key=lambda name: -measured[name]["recovered"],
    )
    safe = {name: result for name, result in measured.items() if name not in open_ones}
    text = (
        f"Without a defence the network reaches {plain['accuracy']:.1f} % and gives away {plain['recovered']} of "
        f"{size} training images ({plain['certified']} of them with a proof). "
    )
    if open_ones:
        text += "These do not protect: " + ", ".join(
            f"{name} ({measured[name]['recovered']} recovered, {measured[name]['certified']} certified)"
            for name in open_ones
        ) + ". "  # fmt: skip
    if not safe:
        return text + "Nothing on this bench protects; do not release such a network with its start."
    ranked = sorted(safe.items(), key=lambda item: -item[1]["accuracy"])
    best, result = ranked[0]
    text += (
        f"Of those that leave at most a tenth to recover and nothing to prove, {best} keeps most accuracy, "
        f"{result['accuracy']:.1f} %"
    )
    others = ", ".join(f"{name} {other['accuracy']:.1f} %" for name, other in ranked[1:4])
    text += f" (then {others})." if others else "."
    proven = [name for name in safe if name.startswith("DP-SGD")]
    return text + (
        " Only DP-SGD promises anything against attacks that nobody has tried yet; the rest were not broken here."
        if proven
        else " None of these promises anything against attacks that nobody has tried yet."
    )


def _figure(results: Mapping[str, Any], size: int) -> Figure:
    """Draw accuracy against what is recovered; a ring stands as high as what is certified. Names stand at the side."""
    shown = {name: result for name, result in results.items() if "skipped" not in result}
    figure = Figure(figsize=(9.2, 5.4))
    axes = figure.add_axes((0.07, 0.1, 0.5, 0.86))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(color=GRID, labelcolor=MUTED, labelsize=8)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set(ylim=(-0.04 * size, 1.04 * size))
    # From the bottom up, and at one height from left to right, so that the lines to the names hardly cross.
    ordered = sorted(shown.items(), key=lambda item: (item[1]["recovered"], item[1]["accuracy"]))
    for place, (name, result) in enumerate(ordered):
        x, y, colour = result["accuracy"], result["recovered"], _colour(name)
        axes.plot(x, y, "o", color=colour, markersize=5)
        if result["certified"]:
            axes.plot([x, x], [result["certified"], y], color=colour, linewidth=0.8)
            axes.plot(x, result["certified"], "o", mfc="none", mec=colour, markersize=9)
        height = (place + 0.5) / len(ordered)
        axes.annotate(
            f"{name}: {x:.1f} %, {y} recovered" + (f", {result['certified']} certified" if result["certified"] else ""),
            (x, y), (1.06, height), textcoords="axes fraction", fontsize=7.5, color=colour, va="center",
            arrowprops={"arrowstyle": "-", "relpos": (0.0, 0.5), "color": colour, "linewidth": 0.4, "alpha": 0.6},
        )  # fmt: skip
    axes.set_xlabel("test accuracy, per cent", color=INK, fontsize=9)
    axes.set_ylabel(f"training images recovered at 1 % false positives (rings: certified), of {size}", fontsize=9)
    return figure


KINDS: tuple[tuple[str, ...], ...] = (
    ("none",),
    ("KIP", "RKIP"),
    ("DP-SGD",),
    ("weight", "Adam"),
    ("softplus", "gelu"),
    ("noise", "float", "bfloat", "int"),
)
"""How the names of defences of one kind begin; each kind has its colour."""


def _colour(name: str) -> str:
    return next(colour for colour, starts in zip(PALETTE, KINDS, strict=False) if name.startswith(starts))


DEFENCES = Study(
    name="defences",
    shows="what defences cost and what they leave to recover, attacked by everything that applies",
    presets={
        "smoke": DefenceBench(
            source="digits", size=8, width=64, strangers=100, distilled=4, distil_steps=20, training_steps=300,
            search_steps=10, rounds=1, trials=1, private_steps=3,
            only=("none", "RKIP", "DP-SGD ε=8", "softplus", "int8"),
        ),
        "cpu": DefenceBench(source="digits", size=30, width=512, strangers=400, distilled=15),
        "gpu": DefenceBench(
            source="mnist", size=50, width=1024, strangers=950, distilled=20, min_distance=4.0, training_steps=8000,
            search_steps=800, rounds=10,
        ),
    },
    measure=measure,
)  # fmt: skip
