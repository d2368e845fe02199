"""The paper's recipe and our attacks on the same networks."""

from dataclasses import dataclass, replace

from exhume.attacks.attack import Attack
from exhume.attacks.gates.gate_certificate import GateCertificate
from exhume.attacks.weight_difference import WeightDifference
from exhume.studies.curve_panels import attack_panels
from exhume.studies.grid import PAPER, Effort, Row, attack_table, grid_numbers
from exhume.studies.study import Study, StudyResult, StudyRun
from exhume.studies.tasks import first_available

THEIRS, OURS, PROVEN = "the paper's recipe", "weight difference", "gate certificate"


@dataclass(frozen=True, kw_only=True)
class Victims:
    """Settings of the comparison with the paper's recipe."""

    networks: tuple[tuple[str, int, int], ...]
    """Source, training set size and width of each network."""
    effort: Effort = Effort()  # noqa: RUF009 - frozen
    published_steps: int = 80_000
    """Number of steps of the paper's recipe; fewer on a CPU."""


def measure(settings: Victims, run: StudyRun) -> StudyResult:
    """Attack the same networks with the paper's recipe, our search, and the certificate."""
    rows: list[Row] = []
    run.cells = 3 * len(settings.networks)
    published = replace(settings.effort, published=True, steps=settings.published_steps, candidates=2.0)
    for sources, size, width in settings.networks:
        attacks: dict[str, Attack] = {
            THEIRS: published.attack(size),
            OURS: replace(settings.effort.attack(size), candidates=None),
            PROVEN: GateCertificate(),
        }
        source = first_available(sources)
        for name, attack in attacks.items():
            trial = settings.effort.trial(source, size, width, run.seed, attack=attack)
            rows.append({"source": source, "variant": name, "size": size, "width": width} | trial.run(run))
    cut = settings.published_steps / WeightDifference.published().steps
    return StudyResult(
        numbers={"rows": grid_numbers(rows)},
        figures={"theirs-and-ours": attack_panels(rows)},
        table=attack_table(rows),
        summary=" ".join(
            [
                *(_compare(rows[first : first + 3]) for first in range(0, len(rows), 3)),
                *([f"The paper's recipe was cut to {100 * cut:.2g} % of its steps."] if cut < 1 else []),
            ]
        ),
    )


def _compare(rows: list[Row]) -> str:
    theirs, _, proven = rows
    counts = ", ".join(
        f"{row['variant']} {row['good']} good, {row['fine']} fine and {row['exact']} exact "
        f"in {row['attack_seconds']:.1f} s"
        for row in rows
    )
    order = "more" if proven["exact"] > theirs["exact"] else "no more"
    return (
        f"{theirs['size']} images of {theirs['source']} at width {theirs['width']}: {counts}. The certificate proves "
        f"{proven['certified']} of them ({proven['false_certificates']} falsely) and finds {order} exact images than "
        "the recipe of the paper."
    )


STUDIES = (
    Study(
        name="theirs-and-ours",
        presets={
            "smoke": Victims(
                networks=(("digits", 8, 128),), effort=Effort(steps=40, stop_loss=1e-6), published_steps=60,
            ),
            "cpu": Victims(networks=(("mnist or digits", 20, 512), ("mnist or digits", 50, 512)), published_steps=4000),
            "gpu": Victims(
                networks=(("mnist", 100, 1024), ("cifar-10", 200, 2048)),
                effort=Effort(steps=10_000, precision="tf32", stop_loss=1e-10),
            ),
            "paper": Victims(
                networks=(("mnist", 100, 1024), ("cifar-10", 200, 2048)), effort=replace(PAPER, published=False),
            ),
        },
        measure=measure,
    ),
)  # fmt: skip
