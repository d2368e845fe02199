"""Where exact recovery works: a map over units per example and examples per input value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from exhume.attacks.gates.gate_certificate import GateCertificate
from exhume.core.errors import Refusal
from exhume.report.figures import INK, quieten
from exhume.studies.study import Bench, Findings, Study
from exhume.studies.trial import Trial, at_hand


@dataclass(frozen=True, kw_only=True)
class Land:
    """Settings of the map."""

    sources: tuple[tuple[str, tuple[int, ...]], ...]
    """Where examples come from, and how many are drawn."""
    ratios: tuple[int, ...]
    """Units of the first layer for each example."""
    seeds: int = 1
    patience: int = 4


def certificate_map(settings: Land, bench: Bench) -> Findings:
    """Attack networks of all sizes from random starts alone, and count the examples that come out exactly."""
    rows: list[dict[str, Any]] = []
    bench.cells = sum(len(sizes) for _, sizes in settings.sources) * len(settings.ratios) * settings.seeds
    for sources, sizes in settings.sources:
        source = at_hand(sources)
        for size in sizes:
            for ratio in settings.ratios:
                found = [_measured(source, size, ratio * size, seed, settings, bench) for seed in range(settings.seeds)]
                rows.append(
                    {
                        "source": source,
                        "size": size,
                        "units_per_example": ratio,
                        "exact": sum(each["exact"] for each in found) / (size * len(found)),
                        "certified": sum(each["certified"] for each in found) / (size * len(found)),
                        "false_certificates": sum(each["false_certificates"] for each in found),
                        "values": max(each["values"] for each in found),
                    }
                )
    return Findings(
        numbers={"rows": rows},
        figures={"certificate-map": _drawn(rows, settings.ratios)},
        table=(
            ("data", "examples", "examples per value", *(f"{ratio} units each" for ratio in settings.ratios)),
            [
                (source, str(size), _per_value(group), *(f"{row['exact']:.0%}" for row in group))
                for (source, size), group in _grouped(rows).items()
            ],
        ),
        summary=_summary(rows, settings.ratios),
    )


def _measured(source: str, size: int, width: int, seed: int, settings: Land, bench: Bench) -> dict[str, Any]:
    attack = GateCertificate(patience=settings.patience)
    trial = Trial(source=source, size=size, width=width, attack=attack, seed=bench.seed + seed)
    try:
        return trial.run(bench)
    except Refusal:  # the rank does not show
        return {"exact": 0, "certified": 0, "false_certificates": 0, "values": 0}


def _grouped(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["source"], row["size"]), []).append(row)
    return groups


def _per_value(group: Sequence[dict[str, Any]]) -> str:
    values = max(row["values"] for row in group)
    return f"{group[0]['size'] / values:.2g}" if values else "–"


def _drawn(rows: Sequence[dict[str, Any]], ratios: Sequence[int]) -> Figure:
    groups = _grouped(rows)
    figure = Figure(figsize=(6.4, 1.1 + 0.42 * len(groups)))
    axes = figure.add_axes((0.34, 0.6 / figure.get_figheight(), 0.64, 1 - 0.7 / figure.get_figheight()))
    quieten(axes)
    axes.grid(False)
    axes.imshow(
        [[row["exact"] for row in group] for group in groups.values()], cmap="Oranges", vmin=0, vmax=1.4, aspect="auto"
    )
    for down, group in enumerate(groups.values()):
        for across, row in enumerate(group):
            axes.text(across, down, f"{row['exact']:.0%}", ha="center", va="center", fontsize=8, color=INK)
    axes.set_xticks(range(len(ratios)), [str(ratio) for ratio in ratios])
    names = [f"{source}, N = {size}, N/d = {_per_value(group)}" for (source, size), group in groups.items()]
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("units per example, W/N")
    return figure


def _summary(rows: Sequence[dict[str, Any]], ratios: Sequence[int]) -> str:
    shares = {ratio: [row["exact"] for row in rows if row["units_per_example"] == ratio] for ratio in ratios}
    said = ", ".join(f"{ratio}: {sum(share) / len(share):.0%}" for ratio, share in shares.items())
    false = sum(row["false_certificates"] for row in rows)
    return f"Examples that come out exactly, by units per example: {said}; certificates that are false: {false}."


CERTIFICATE_MAP = Study(
    name="certificate-map",
    shows="where exact recovery works, over units per example and examples per input value",
    presets={
        "smoke": Land(sources=(("digits", (8,)),), ratios=(3, 24)),
        "cpu": Land(
            sources=(("mnist or digits", (10, 20, 40)), ("digits", (8, 16, 32))),
            ratios=(4, 6, 8, 12, 20), seeds=2,
        ),
        "gpu": Land(
            sources=(("mnist or digits", (20, 50, 100, 200)), ("cifar-10 or digits", (50, 100, 200))),
            ratios=(4, 5, 6, 8, 12, 20), seeds=3, patience=12,
        ),
    },
    measure=certificate_map,
)  # fmt: skip
