"""Where exact recovery works: a map over units per example and examples per input value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from exhume.attacks.gates.gate_certificate import GateCertificate
from exhume.core.errors import Refusal
from exhume.report.figures import INK, style_axes
from exhume.studies.study import Study, StudyResult, StudyRun
from exhume.studies.tasks import first_available
from exhume.studies.trial import Trial


@dataclass(frozen=True, kw_only=True)
class CertificateMap:
    """Settings of the map."""

    sources: tuple[tuple[str, tuple[int, ...]], ...]
    """Sources of examples, each with the training set sizes to draw."""
    ratios: tuple[int, ...]
    """Units of the first layer per example."""
    seeds: int = 1
    patience: int = 4


def measure(settings: CertificateMap, run: StudyRun) -> StudyResult:
    """Attack networks of all sizes and count the examples that are recovered exactly."""
    rows: list[dict[str, Any]] = []
    run.cells = sum(len(sizes) for _, sizes in settings.sources) * len(settings.ratios) * settings.seeds
    for sources, sizes in settings.sources:
        source = first_available(sources)
        for size in sizes:
            for ratio in settings.ratios:
                found = [
                    _attack_network(source, size, ratio * size, seed, settings, run) for seed in range(settings.seeds)
                ]
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
    return StudyResult(
        numbers={"rows": rows},
        figures={"certificate-map": _draw(rows, settings.ratios)},
        table=(
            ("data", "examples", "examples per value", *(f"{ratio} units each" for ratio in settings.ratios)),
            [
                (source, str(size), _per_value(group), *(f"{row['exact']:.0%}" for row in group))
                for (source, size), group in _group(rows).items()
            ],
        ),
        summary=_summary(rows, settings.ratios),
    )


def _attack_network(
    source: str, size: int, width: int, seed: int, settings: CertificateMap, run: StudyRun
) -> dict[str, Any]:
    attack = GateCertificate(patience=settings.patience)
    trial = Trial(source=source, size=size, width=width, attack=attack, seed=run.seed + seed)
    try:
        return trial.run(run)
    except Refusal:  # the weights do not determine the training set size
        return {"exact": 0, "certified": 0, "false_certificates": 0, "values": 0}


def _group(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["source"], row["size"]), []).append(row)
    return groups


def _per_value(group: Sequence[dict[str, Any]]) -> str:
    values = max(row["values"] for row in group)
    return f"{group[0]['size'] / values:.2g}" if values else "–"


def _draw(rows: Sequence[dict[str, Any]], ratios: Sequence[int]) -> Figure:
    groups = _group(rows)
    figure = Figure(figsize=(6.4, 1.1 + 0.42 * len(groups)))
    axes = figure.add_axes((0.34, 0.6 / figure.get_figheight(), 0.64, 1 - 0.7 / figure.get_figheight()))
    style_axes(axes)
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
    by_ratio = ", ".join(f"{ratio}: {sum(share) / len(share):.0%}" for ratio, share in shares.items())
    false = sum(row["false_certificates"] for row in rows)
    return f"Share of examples recovered exactly, by units per example: {by_ratio}. False certificates: {false}."


STUDIES = (
    Study(
        name="certificate-map",
        presets={
            "smoke": CertificateMap(sources=(("digits", (8,)),), ratios=(3, 24)),
            "cpu": CertificateMap(
                sources=(("mnist or digits", (10, 20, 40)), ("digits", (8, 16, 32))),
                ratios=(4, 6, 8, 12, 20), seeds=2,
            ),
            "gpu": CertificateMap(
                sources=(("mnist or digits", (20, 50, 100, 200)), ("cifar-10 or digits", (50, 100, 200))),
                ratios=(4, 5, 6, 8, 12, 20), seeds=3, patience=12,
            ),
        },
        measure=measure,
    ),
)  # fmt: skip
