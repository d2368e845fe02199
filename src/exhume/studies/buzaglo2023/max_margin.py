"""What final weights alone give away: the studies of Haim et al. (2022) and Buzaglo et al. (2023), each with its null.

A study is a row of *cases*, each a training and an attack on its final weights, over several seeds. Whatever is counted
on training images is counted on held-out ones too.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.stationarity import Stationarity
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.data import load
from exhume.evaluation.calibration import calibrate
from exhume.evaluation.comparison import example_distances, neighbour_distances
from exhume.evaluation.distances import UnitScale, cross_correlations, ssim
from exhume.models.architecture import Architecture
from exhume.models.convnet import ConvNet
from exhume.records import AttackerView, Calibration, Dataset, Outcome, Reconstruction, Split, Victim
from exhume.records.comparison import EXACT, SIMILAR
from exhume.report.figures import HELD_OUT, TRAINED, plain_axes
from exhume.studies.study import Bench, Findings, Preset, Study
from exhume.training import train
from exhume.training.kkt import kkt_report
from exhume.training.recipes import small_first_layer, weight_decay_recipe
from exhume.training.settings import LossName

AttackName = Literal["max-margin", "stationarity", "tied", "noise"]
RATES = (1.0, 0.3, 0.1, 0.03)
"""By which a learning rate is multiplied, in turn, until a training does not diverge."""
FPR = 0.01
EXACTLY = "black"
"""Of lines that count exact recoveries."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training and one attack on what it left."""

    label: str
    """What the figure calls it."""
    source: str = "mnist"
    classes: str = "all"
    size: int = 20
    shrink: int = 2
    """The side of the square of pixels that are averaged into one; 1: none."""
    strangers: int = 400
    """Held-out examples to measure against."""
    width: int = 200
    depth: int = 2
    convnet: bool = False
    loss: LossName = "ce"
    weight_decay: float = 0.0
    lr: float = 0.1
    train_steps: int = 3000
    attack: AttackName = "max-margin"
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the attack, where they differ from its defaults."""
    oracle: bool = False
    """Whether the settings are chosen, among the same trials, by a look at the training images. For comparison only."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cases of one study, and how often each is drawn anew."""

    cases: tuple[Case, ...]
    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The plans of several studies, by name."""

    plans: dict[str, Plan]


def measure_case(case: Case, seed: int, bench: Bench) -> dict[str, Any]:
    """Train, attack the final weights, and count what came out beside its null."""
    data = drawn(case, seed)
    victim = trained(case, data, seed, bench)
    report = kkt_report(victim, data)
    found = attacked(case, replace(victim.view(), initial=None), data, seed, bench)
    ranks = relative_ranks(found, data)
    level = ranks.level(FPR)
    similar = papers_count(found, data)
    return {
        "label": case.label,
        "seed": seed,
        "training_size": case.size,
        "recovered": level.recovered,
        "recovered_null": round(level.holdout_recovered * case.size / len(data.holdout)),
        "chance": level.chance,
        "similar": similar[0],
        "similar_null": similar[1],
        "correlated": similar[2],
        "auc": ranks.auc,
        "size_estimate": found.diagnostics.get("training_size_estimate"),
        "residual": min(found.diagnostics["residuals"]),
        "upper_layers": found.diagnostics.get("upper_layers"),
        "exact": exactly_recovered(found, data.train),
        "exact_null": exactly_recovered(found, data.holdout),
        "points_of_edges": len(found.diagnostics.get("edges_met", ())),
        "candidates": len(found),
        "attack": found.attack,
        "attack_seconds": found.seconds,
        "training_seconds": victim.result["seconds"],
        "training_loss": victim.result["loss"],
        "kkt_residual": report.residual,
        "kkt_margin_residual": report.margin_residual,
        "kkt_layers": report.layers,
        "oracle": case.oracle,
    } | gallery(found, data)


def drawn(case: Case, seed: int) -> Dataset:
    """Draw the training set and as many strangers as the case asks for, in its resolution."""
    few = load(case.source, classes=case.classes, size=case.size, test=0, seed=seed)
    many = load(case.source, classes=case.classes, size=max(case.size, case.strangers), test=0, seed=seed)
    train_split = shrunk(few.train, case.shrink)
    inputs = train_split.inputs
    return replace(
        few,
        train=train_split,
        holdout=shrunk(many.holdout, case.shrink),
        offset=inputs.mean(dim=(0, 2, 3)).reshape(-1, 1, 1) if inputs.ndim == 4 else few.offset,
    )


def shrunk(split: Split, factor: int) -> Split:
    """Average squares of pixels, so that small machines see small images."""
    if factor == 1:
        return split
    return Split(inputs=torch.nn.functional.avg_pool2d(split.inputs, factor), labels=split.labels)


def trained(case: Case, data: Dataset, seed: int, bench: Bench) -> Victim:
    """Train by the papers' recipe, with smaller steps where larger ones diverge."""
    model: Architecture = small_first_layer(case.width, case.depth)
    if case.convnet:
        model = ConvNet(channels=case.width, depth=1, bias=False)
    for factor in RATES:
        recipe = weight_decay_recipe(
            loss=case.loss,
            weight_decay=case.weight_decay,
            steps=case.train_steps,
            lr=factor * case.lr,
            model=model,
        )
        try:
            return train(data, device=bench.device, progress=bench.progress, seed=seed, **recipe)
        except ExhumeError as error:
            if "diverged" not in str(error) or factor == RATES[-1]:
                raise
    raise AssertionError("unreachable")


@dataclass(frozen=True, kw_only=True)
class NoiseInSpan(Attack):
    """The control of every search in the span of the inputs: points of that span drawn blindly.

    The span by itself is knowledge; what a search adds to it must be measured against this.
    """

    oversampling: float = 1.0
    spread: float = 0.5

    def check(self, view: AttackerView) -> None:
        """Refuse where no span shows."""
        if clues_of(view).span is None:
            raise Refusal("The first layer does not show the span of the inputs.")

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Draw normals of one spread along every direction of the span."""
        span = clues_of(view).span
        assert span is not None
        space = SearchSpace.spanned_by(span, torch.float32)
        count = round(self.oversampling * span.rank)
        noise = torch.randn(count, space.size, generator=context.generator).to(view.device)
        free = self.spread * (space.size / space.dimension) ** 0.5 * space.project(noise)
        pixels = view.to_pixels(space.inputs(space.coordinates(free)))
        return Reconstruction(
            inputs=pixels if view.bounds is None else pixels.clamp(*view.bounds),
            certified=torch.zeros(count, dtype=torch.bool),
            confidence=torch.zeros(count),
            outcome=Outcome.NOTHING_FOUND,
            message="Points of the span, drawn blindly.",
            diagnostics={"residuals": [1.0], "training_size_estimate": span.rank},
        )


def attacked(case: Case, view: AttackerView, data: Dataset, seed: int, bench: Bench) -> Reconstruction:
    """Run the attack of a case; with an oracle, under the settings of each of its trials, and keep the best result."""
    attack = attack_of(case)
    found = attack.run(view, seed=seed, device=bench.device, progress=bench.progress)
    if not case.oracle:
        return found
    rivals = []
    for trial in found.diagnostics["trials"]:
        pinned = {name: (value, value) for name, value in trial["settings"].items()}
        alone = replace(attack, **{"trials": 1, **pinned})
        rivals.append(alone.run(view, seed=seed, device=bench.device, progress=bench.progress))
    return max(rivals, key=lambda rival: relative_ranks(rival, data).level(FPR).recovered)


def attack_of(case: Case) -> Attack:
    """Build the attack of a case."""
    if case.attack == "noise":
        return NoiseInSpan()
    if case.attack == "max-margin":
        return MaxMargin(**case.settings)
    return Stationarity(multiplier="tied" if case.attack == "tied" else "free", **case.settings)


def relative_ranks(found: Reconstruction, data: Dataset) -> Calibration:
    """Rank training among held-out images as :func:`exhume.evaluate` does, without matching thousands of candidates."""
    scale, everybody = UnitScale.of(data), torch.cat([data.train.inputs, data.holdout.inputs])
    ratios = example_distances(found.inputs, everybody, scale) / neighbour_distances(everybody, scale)
    ranks = calibrate(ratios[: len(data.train)], ratios[len(data.train) :])
    assert ranks is not None
    return ranks


def papers_count(found: Reconstruction, data: Dataset) -> tuple[int, int, int]:
    """Count as the papers do, on training images and on as many held-out ones.

    Every image is matched with the candidate that correlates best (colour images at half resolution) and counts when
    their structural similarity exceeds 0.4. One candidate may serve several images.

    Returns:
        Similar training images, similar held-out images, and training images whose best correlation exceeds that of all
        but one percent of held-out ones.
    """
    scale = UnitScale.of(data)
    size = len(data.train)
    every = scale(torch.cat([data.train.inputs, data.holdout.inputs]))
    candidates = scale(found.inputs)
    best, place = _best_matches(candidates, every)
    similarities = ssim(candidates[place], every)
    allowed = int(FPR * len(data.holdout))
    bar = best[size:].sort(descending=True).values[allowed]
    good = similarities > SIMILAR
    return int(good[:size].sum()), int(good[size:][:size].sum()), int((best[:size] > bar).sum())


def _best_matches(candidates: Tensor, every: Tensor) -> tuple[Tensor, Tensor]:
    def coarse(images: Tensor) -> Tensor:
        is_colour = images.ndim == 4 and images.shape[1] == 3
        return torch.nn.functional.avg_pool2d(images, 2) if is_colour else images

    table = cross_correlations(coarse(candidates).float(), coarse(every).float())
    best, place = table.max(0)
    return best, place


def exactly_recovered(found: Reconstruction, images: Split) -> int:
    """Count images of which no pixel is further than about five grey levels from a point that edges fix."""
    fixed = found.inputs[: len(found.diagnostics.get("edges_met", ()))].flatten(1)
    if not len(fixed):
        return 0
    nearest = torch.cdist(images.inputs.flatten(1).to(fixed), fixed, p=float("inf")).amin(1)
    return int((nearest < EXACT).sum())


def gallery(found: Reconstruction, data: Dataset, most: int = 20) -> dict[str, Tensor]:
    """Keep the best matches for the figure: candidates above the training images they resemble."""
    best, place = _best_matches(found.inputs, data.train.inputs)
    first = best.argsort(descending=True)[:most]
    return {"shown": found.inputs[place[first]], "originals": data.train.inputs[first]}


def study_cases(plan: Plan, bench: Bench, name: str) -> list[dict[str, Any]]:
    """Measure every case under every seed."""
    rows = []
    for number, case in enumerate(plan.cases):
        for seed in range(bench.seed, bench.seed + plan.seeds):
            place = f"{name}/{number}-{seed}"
            rows.append(bench.cell(place, functools.partial(measure_case, case, seed, bench), needed=COLUMNS))
    return rows


def recovery_figure(plan: Plan, rows: Sequence[dict[str, Any]], axis: str) -> Figure:
    """Draw recovered images by case, a dot a seed, with what the exchanged sets give as the null."""
    figure, axes = plain_axes()
    labels = [case.label for case in plan.cases]
    lines = [("recovered", TRAINED, "trained on"), ("recovered_null", HELD_OUT, "held out (null)")]
    if any(row["exact"] for row in rows):
        lines.append(("exact", EXACTLY, "trained on, exactly"))
    for key, colour, word in lines:
        groups = [[row[key] / row["training_size"] for row in rows if row["label"] == label] for label in labels]
        for place, group in enumerate(groups):
            axes.scatter([place] * len(group), group, s=14, color=colour, alpha=0.6, linewidths=0)
        means = [sum(group) / len(group) for group in groups]
        axes.plot(range(len(labels)), means, color=colour, linewidth=2, label=word)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_xlabel(axis)
    axes.set_ylabel("share of training images recovered at 1 % FPR")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=8)
    return figure


def gallery_figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the best matches of the row that recovered most."""
    row = max(rows, key=lambda one: one["recovered"])
    shown, originals = row["shown"].clamp(0, 1), row["originals"].clamp(0, 1)
    figure = Figure(figsize=(8.0, 16.0 / max(1, len(shown))))
    for number, (above, below) in enumerate(zip(shown, originals, strict=True)):
        for place, image in ((0, above), (1, below)):
            axes = figure.add_axes((number / len(shown), 0.5 - 0.5 * place, 0.95 / len(shown), 0.48))
            axes.imshow(_picture(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes.set_axis_off()
    return figure


def _picture(image: Float[Tensor, "channel height width"]) -> Any:
    return image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()


def findings(plan: Plan, rows: Sequence[dict[str, Any]], axis: str, name: str) -> Findings:
    """Turn rows into a table, figures and a sentence."""
    table = []
    for case in plan.cases:
        own = [row for row in rows if row["label"] == case.label]
        table.append((case.label, *(_mean(own, key) for key in COLUMNS)))
    best = max(table, key=lambda line: float(line[1]))
    return Findings(
        numbers={"rows": [{key: value for key, value in row.items() if not isinstance(value, Tensor)} for row in rows]},
        figures={name: recovery_figure(plan, rows, axis), f"{name}-gallery": gallery_figure(rows)},
        table=((axis, *COLUMNS.values()), table),
        summary=f"Most is recovered for {axis} {best[0]}: {best[1]} images at 1 % FPR on average (null {best[2]}).",
    )


COLUMNS = {
    "recovered": "recovered at 1 % FPR",
    "recovered_null": "null",
    "similar": "SSIM > 0.4",
    "similar_null": "its null",
    "correlated": "by correlation at 1 % FPR",
    "exact": "exact",
    "exact_null": "exact, held out",
    "kkt_residual": "KKT residual",
    "residual": "unexplained",
    "attack_seconds": "seconds",
}


def _mean(rows: Sequence[dict[str, Any]], key: str) -> str:
    mean = sum(float(row[key]) for row in rows) / len(rows)
    return f"{mean:.3g}"


TINY = {"trials": 2, "trial_steps": 10, "restarts": 2, "steps": 20}
QUICK = {"trials": 4, "trial_steps": 150, "winners": 1, "restarts": 4, "steps": 800}
LARGE = {
    "trials": 16,
    "trial_steps": 250,
    "restarts": 16,
    "steps": 4000,
    "oversampling": 2.0,
    "at_once": 16,
    "precision": "tf32",
}


SHORT: dict[str, Any] = {"candidates": 20, "trials": 2, "restarts": 2, "steps": 400, "within_span": False}
"""Of a comparison with networks that show no span and have no closed form."""
ALL_PIXELS: dict[str, Any] = {"within_span": False, "spread": (1e-4, 0.1), "sharpness": (10.0, 500.0)}
"""As the papers search: no span, twice as many candidates as there were images."""


def smoke(cases: tuple[Case, ...]) -> Plan:
    """Return cases cut down to seconds, on bundled images."""
    return Plan(
        seeds=1,
        cases=tuple(
            replace(
                case,
                source="digits",
                classes="odd-even" if case.classes == "animal-vehicle" else case.classes,
                size=10,
                shrink=1,
                strangers=100,
                width=8 if case.convnet else 32,
                train_steps=40,
                settings=TINY | {key: value for key, value in case.settings.items() if key == "candidates"},
            )
            for case in cases
        ),
    )


def _plans(cases: tuple[Case, ...], gpu: tuple[Case, ...] | None = None) -> dict[Preset, Plan]:
    """Return the three presets of a study: cut down, as it is, and with the papers' networks."""
    quick = tuple(replace(case, settings=QUICK | case.settings) for case in cases)
    large = gpu if gpu is not None else tuple(replace(case, settings=LARGE | case.settings) for case in cases)
    return {"smoke": smoke(cases[:2]), "cpu": Plan(cases=quick), "gpu": Plan(cases=large, seeds=1)}


CIFAR = Case(
    label="", source="cifar-10", classes="animal-vehicle", size=500, shrink=1, strangers=1000, width=1000, loss="bce",
    train_steps=20_000, settings=LARGE,
)  # fmt: skip
SMALL_CIFAR = replace(
    CIFAR, size=60, strangers=400, width=300, train_steps=2500, settings=QUICK | {"restarts": 3, "oversampling": 2.0}
)
ALL_LAYERS: dict[str, Any] = {"upper_layers": 1.0}
"""As the papers count: every layer alike."""
TWO_CLASSES = replace(SMALL_CIFAR, size=40, width=200)
REGRESSION = Case(label="", loss="mse", lr=0.3, attack="tied")
WEIGHT_DECAYS = tuple(
    Case(label=f"{decay:g}", weight_decay=decay, attack="max-margin") for decay in (0.0, 2e-4, 1e-3, 3e-3)
)
AXES: dict[str, tuple[str, str, dict[Preset, Plan]]] = {
    "weight-decay": ("weight decay", "recovered images against weight decay", _plans(WEIGHT_DECAYS)),
    "decay-binary": (
        "weight decay",
        "weight decay on two classes of CIFAR-10, with every layer counted alike as in the papers, and by default",
        _plans(
            tuple(
                replace(
                    TWO_CLASSES,
                    label=f"{decay:g}{name}",
                    weight_decay=decay,
                    settings=TWO_CLASSES.settings | counted,
                )
                for name, counted in ((", all layers", ALL_LAYERS), ("", {}))
                for decay in (0.0, 2e-3)
            )
        ),
    ),
    "exact": (
        "weight decay",
        "images that come out exactly, where the edges of units meet, of ten",
        _plans(tuple(replace(case, size=10, width=400) for case in WEIGHT_DECAYS)),
    ),
    "choice": (
        "settings",
        "settings chosen by what is left unexplained, and by an oracle that sees the training images",
        _plans(
            tuple(
                Case(label=f"{name}, decay {decay:g}", weight_decay=decay, oracle=oracle)
                for decay in (0.0, 1e-3)
                for name, oracle in (("residual", False), ("oracle", True))
            )
        ),
    ),
    "classes": (
        "classes",
        "two classes against ten, at the same number of images",
        _plans(
            (
                Case(label="2", classes="odd-even", loss="bce", weight_decay=1e-3),
                Case(label="5", classes="0,1,2,3,4", weight_decay=1e-3),
                Case(label="10", weight_decay=1e-3),
            )
        ),
    ),
    "width": (
        "units a layer",
        "neurons a training image",
        _plans(tuple(Case(label=str(width), width=width, weight_decay=1e-3) for width in (40, 80, 160, 320, 640))),
    ),
    "loss": (
        "loss",
        "regression with weight decay and without",
        _plans(
            (
                replace(REGRESSION, label="mse"),
                replace(REGRESSION, label="mse, decay", weight_decay=3e-3),
                replace(REGRESSION, label="huber, decay", loss="huber", weight_decay=3e-3),
                Case(label="ce"),
                Case(label="ce, decay", weight_decay=1e-3),
            )
        ),
    ),
    "size": (
        "training images",
        "size of the training set",
        _plans(tuple(Case(label=str(size), size=size, weight_decay=1e-3) for size in (10, 20, 30, 50))),
    ),
    "architecture": (
        "network",
        "dense against convolutional",
        _plans(
            (
                Case(label="dense", weight_decay=1e-3, settings=SHORT),
                Case(label="convolutional", convnet=True, width=8, weight_decay=1e-3, settings=SHORT),
            )
        ),
    ),
    "control": (
        "candidates",
        "what a search adds to the span of the inputs, which is known before it",
        _plans(
            (
                Case(label="blind points of the span", weight_decay=1e-3, attack="noise"),
                Case(label="the search", weight_decay=1e-3),
            )
        ),
    ),
    "cifar": (
        "setting",
        "the papers' networks on CIFAR-10: 2 × 250 vehicles and animals, 10 × 50",
        {
            "smoke": smoke((replace(CIFAR, label="binary"),)),
            "cpu": Plan(
                seeds=1,
                cases=(
                    replace(SMALL_CIFAR, label="binary"),
                    replace(SMALL_CIFAR, label="ten classes", classes="all", loss="ce"),
                    replace(SMALL_CIFAR, label="binary, blind", attack="noise"),
                    replace(SMALL_CIFAR, label="ten, blind", classes="all", loss="ce", attack="noise"),
                ),
            ),
            "gpu": Plan(
                seeds=1,
                cases=(
                    replace(CIFAR, label="binary"),
                    replace(CIFAR, label="ten classes", classes="all", loss="ce"),
                    replace(CIFAR, label="binary, all pixels", settings=LARGE | ALL_PIXELS | {"candidates": 1000}),
                    replace(CIFAR, label="binary, decay", weight_decay=5e-4),
                    replace(CIFAR, label="ten, decay", classes="all", loss="ce", weight_decay=5e-4),
                    replace(CIFAR, label="mse, decay", loss="mse", weight_decay=5e-4, attack="stationarity"),
                    replace(CIFAR, label="binary, blind", attack="noise"),
                    replace(CIFAR, label="ten, blind", classes="all", loss="ce", attack="noise"),
                ),
            ),
        },
    ),
}


def _study(name: str, axis: str, shows: str, presets: dict[Preset, Plan]) -> Study[Plan]:
    def measure(plan: Plan, bench: Bench) -> Findings:
        bench.cells = len(plan.cases) * plan.seeds
        return findings(plan, study_cases(plan, bench, name), axis, name)

    return Study(name=f"max-margin-{name}", shows=shows, presets=presets, measure=measure)


def _all(presets: Plans, bench: Bench) -> Findings:
    """Run every study in one folder."""
    bench.cells = sum(len(plan.cases) * plan.seeds for plan in presets.plans.values())
    parts = {
        name: findings(plan, study_cases(plan, bench, name), AXES[name][0], name)
        for name, plan in presets.plans.items()
    }
    lines = [(name, *line) for name, part in parts.items() if part.table is not None for line in part.table[1]]
    return Findings(
        numbers={name: part.numbers for name, part in parts.items()},
        figures={file: figure for part in parts.values() for file, figure in part.figures.items()},
        table=(("study", "case", *COLUMNS.values()), lines),
        summary=" ".join(f"{name}: {part.summary}" for name, part in parts.items()),
    )


_PRESETS: tuple[Preset, ...] = ("smoke", "cpu", "gpu")
MAX_MARGIN_STUDIES: tuple[Study[Any], ...] = (
    Study(
        name="max-margin",
        shows="what final weights alone give away: all of the studies below",
        presets={
            preset: Plans(plans={name: presets[preset] for name, (_, _, presets) in AXES.items()})
            for preset in _PRESETS
        },
        measure=_all,
    ),
    *(_study(name, *parts) for name, parts in AXES.items()),
)
