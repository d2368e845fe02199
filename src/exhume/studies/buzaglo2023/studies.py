"""The studies of final weights: each varies one thing (weight decay, width, loss, ...) and counts recovered images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exhume.studies.buzaglo2023.cases import ALL_PIXELS, COLUMNS, LARGE, QUICK, TINY, Case, Plan, measure_plans
from exhume.studies.buzaglo2023.figures import gallery_figure, recovery_figure
from exhume.studies.buzaglo2023.trends import TRENDS
from exhume.studies.catalogue import Preset
from exhume.studies.study import Study, StudyResult, StudyRun, without_tensors

SHORT: dict[str, Any] = {"candidates": 20, "trials": 2, "restarts": 2, "steps": 400, "within_span": False}
"""Settings of a comparison with networks that show no span and have no closed form."""


def _shrink_to_smoke(cases: tuple[Case, ...]) -> Plan:
    """Return cases that take seconds, on bundled images."""
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


def _make_presets(cases: tuple[Case, ...], seeds: int = 3) -> dict[Preset, Plan]:
    """Return the three presets of a study: two cases in seconds, all in minutes, and all with a long search."""
    quick = tuple(replace(case, settings=QUICK | case.settings) for case in cases)
    large = tuple(replace(case, settings=LARGE | case.settings) for case in cases)
    return {
        "smoke": _shrink_to_smoke(cases[:2]),
        "cpu": Plan(cases=quick, seeds=seeds),
        "gpu": Plan(cases=large, seeds=seeds),
    }


CIFAR = Case(
    label="", source="cifar-10", classes="animal-vehicle", size=500, shrink=1, strangers=1000, width=1000, loss="bce",
    train_steps=20_000, settings=LARGE,
)  # fmt: skip
SMALL_CIFAR = replace(
    CIFAR, size=60, strangers=400, width=300, train_steps=2500, settings=QUICK | {"restarts": 3, "oversampling": 2.0}
)
COLOURS: dict[str, Any] = {"smoothness": 1.0, "colour": 1.0, "restarts": 32, "steps": 3000, "winners": 8}
"""Candidates as smooth as photographs, over space and over colours, from more settings and starts."""
SOFT_COLOURS = LARGE | COLOURS | {"sharpness": (8.0, 60.0)}
SHARP_COLOURS = LARGE | COLOURS | {"sharpness": (30.0, 300.0)}
"""Ranges of sharpness that were narrowed after seeing what runs on such networks recovered."""
LARGE_ALL_PIXELS = LARGE | ALL_PIXELS | {"candidates": 1000}
PROVE: dict[str, Any] = {"prove": True}
"""Certify points where edges meet."""
FREE_LABELS: dict[str, Any] = {"free_labels": True}
ALL_RIVALS: dict[str, Any] = {"rivals": "all"}
ALL_LAYERS: dict[str, Any] = {"upper_layers": 1.0}
"""The objective of the papers: all layers have the same weight."""
TWO_CLASSES = replace(SMALL_CIFAR, size=40, width=200)
TEN_CLASSES = replace(TWO_CLASSES, classes="all", loss="ce")
REGRESSION = Case(label="", loss="mse", lr=0.3, attack="tied")
WEIGHT_DECAYS = tuple(
    Case(label=f"{decay:g}", weight_decay=decay, attack="max-margin") for decay in (0.0, 2e-4, 1e-3, 3e-3)
)
CASES: dict[str, tuple[str, tuple[Case, ...]]] = {
    "weight-decay": ("weight decay", WEIGHT_DECAYS),
    "decay-binary": (
        "weight decay",
        tuple(
            replace(TWO_CLASSES, label=f"{decay:g}{name}", weight_decay=decay, settings=TWO_CLASSES.settings | counted)
            for name, counted in ((", all layers", ALL_LAYERS), ("", {}))
            for decay in (0.0, 2e-3)
        ),
    ),
    "smoothness": (
        "weight of smoothness",
        tuple(
            replace(
                TWO_CLASSES,
                label=f"{weight:g}, decay {decay:g}",
                weight_decay=decay,
                settings=TWO_CLASSES.settings | {"smoothness": weight},
            )
            for decay in (0.0, 2e-3)
            for weight in (0.0, 1.0, 3.0)
        ),
    ),
    "labels": (  # without edges, which do not depend on them
        "labels and rivals",
        tuple(
            replace(
                base,
                label=f"{name}, decay {decay:g}",
                weight_decay=decay,
                settings=base.settings | {"edges": False} | changed,
            )
            for base, name, changed in (
                (TWO_CLASSES, "balanced labels", {}),
                (TWO_CLASSES, "free labels", FREE_LABELS),
                (TEN_CLASSES, "nearest rival", {}),
                (TEN_CLASSES, "all rivals", ALL_RIVALS),
            )
            for decay in (0.0, 2e-3)
        ),
    ),
    "exact": ("weight decay", tuple(replace(case, size=10, width=400) for case in WEIGHT_DECAYS)),
    "exact-size": (
        "training images",
        tuple(
            Case(label=str(size), size=size, width=400, weight_decay=1e-3, settings=PROVE) for size in (10, 20, 30, 50)
        ),
    ),
    "exact-map": (
        "images × units per image",
        tuple(
            Case(label=f"{size} × {units}", size=size, width=size * units, weight_decay=1e-3, settings=PROVE)
            for size in (10, 20, 30)
            for units in (5, 10, 20, 40)
        ),
    ),
    "choice": (
        "settings",
        tuple(
            Case(label=f"{name}, decay {decay:g}", weight_decay=decay, oracle=oracle)
            for decay in (0.0, 1e-3)
            for name, oracle in (("residual", False), ("oracle", True))
        ),
    ),
    "classes": (
        "classes",
        (
            Case(label="2", classes="odd-even", loss="bce", weight_decay=1e-3),
            Case(label="5", classes="0,1,2,3,4", weight_decay=1e-3),
            Case(label="10", weight_decay=1e-3),
        ),
    ),
    "width": (
        "units per layer",
        tuple(Case(label=str(width), width=width, weight_decay=1e-3) for width in (40, 80, 160, 320, 640)),
    ),
    "depth": (
        "hidden layers",
        tuple(Case(label=str(depth), depth=depth, weight_decay=1e-3) for depth in (1, 2, 3)),
    ),
    "loss": (
        "loss",
        (
            replace(REGRESSION, label="mse"),
            replace(REGRESSION, label="mse, decay", weight_decay=3e-3),
            replace(REGRESSION, label="huber, decay", loss="huber", weight_decay=3e-3),
            Case(label="ce"),
            Case(label="ce, decay", weight_decay=1e-3),
        ),
    ),
    "size": (
        "training images",
        tuple(Case(label=str(size), size=size, weight_decay=1e-3) for size in (10, 20, 30, 50)),
    ),
    "architecture": (
        "network",
        (
            Case(label="dense", weight_decay=1e-3, settings=SHORT),
            Case(label="convolutional", convnet=True, width=8, weight_decay=1e-3, settings=SHORT),
        ),
    ),
    "control": (
        "candidates",
        (
            Case(label="blind points of the span", weight_decay=1e-3, attack="noise"),
            Case(label="the search", weight_decay=1e-3),
        ),
    ),
}
"""What each study varies, as the label of the axis, and its cases."""
SEEDS = {"exact-map": 1}
"""Draws per case in minutes, where there are not three: a map has many cases."""
AXES: dict[str, tuple[str, dict[Preset, Plan]]] = {
    **{name: (axis, _make_presets(cases, SEEDS.get(name, 3))) for name, (axis, cases) in CASES.items()},
    "cifar": (
        "setting",
        {
            "smoke": _shrink_to_smoke((replace(CIFAR, label="binary"),)),
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
                    replace(CIFAR, label="binary, all pixels", settings=LARGE_ALL_PIXELS),
                    replace(CIFAR, label="binary, decay", weight_decay=5e-4),
                    replace(CIFAR, label="ten, decay", classes="all", loss="ce", weight_decay=5e-4),
                    replace(CIFAR, label="mse, decay", loss="mse", weight_decay=5e-4, attack="stationarity"),
                    replace(CIFAR, label="binary, colours", settings=SOFT_COLOURS),
                    replace(CIFAR, label="binary, decay, colours", weight_decay=5e-4, settings=SHARP_COLOURS),
                    replace(CIFAR, label="ten classes, colours", classes="all", loss="ce", settings=SOFT_COLOURS),
                    replace(CIFAR, label="binary, blind", attack="noise"),
                    replace(CIFAR, label="ten, blind", classes="all", loss="ce", attack="noise"),
                ),
            ),
        },
    ),
}
"""What each study varies, as the label of the axis, and its presets."""


def summarise(plan: Plan, rows: Sequence[dict[str, Any]], axis: str, name: str) -> StudyResult:
    """Turn rows into a table, figures and a sentence: what the paper observed, and whether that holds here."""
    table = []
    for case in plan.cases:
        own = [row for row in rows if row["label"] == case.label]
        table.append((case.label, *(f"{sum(float(row[key]) for row in own) / len(own):.3g}" for key in COLUMNS)))
    best = max(table, key=lambda line: float(line[1]))
    trend = TRENDS[name].judge(rows) if name in TRENDS else ""
    most = f"Most images are recovered for {axis} {best[0]}: {best[1]} on average at 1 % FPR (null {best[2]})."
    return StudyResult(
        numbers={"rows": [without_tensors(row) for row in rows], "trend": trend},
        figures={name: recovery_figure(plan, rows, axis, title=trend), f"{name}-gallery": gallery_figure(rows)},
        table=((axis, *COLUMNS.values()), table),
        summary=f"{most} {trend}".rstrip(),
    )


def _study(name: str, axis: str, presets: Mapping[Preset, Plan]) -> Study[Plan]:
    def measure(plan: Plan, run: StudyRun) -> StudyResult:
        return summarise(plan, measure_plans({name: plan}, run)[name], axis, name)

    return Study(name=f"max-margin-{name}", presets=presets, measure=measure)


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The plans of all studies, by name."""

    plans: dict[str, Plan]


def _measure_all(settings: Plans, run: StudyRun) -> StudyResult:
    """Run every study in one folder."""
    parts = {
        name: summarise(settings.plans[name], rows, AXES[name][0], name)
        for name, rows in measure_plans(settings.plans, run).items()
    }
    lines = [(name, *line) for name, part in parts.items() if part.table is not None for line in part.table[1]]
    return StudyResult(
        numbers={name: part.numbers for name, part in parts.items()},
        figures={file: figure for part in parts.values() for file, figure in part.figures.items()},
        table=(("study", "case", *COLUMNS.values()), lines),
        summary=" ".join(f"{name}: {part.summary}" for name, part in parts.items()),
    )


_PRESETS: tuple[Preset, ...] = ("smoke", "cpu", "gpu")
STUDIES: tuple[Study[Any], ...] = (
    Study(
        name="max-margin",
        presets={
            preset: Plans(plans={name: presets[preset] for name, (_, presets) in AXES.items()}) for preset in _PRESETS
        },
        measure=_measure_all,
    ),
    *(_study(name, axis, presets) for name, (axis, presets) in AXES.items()),
)
