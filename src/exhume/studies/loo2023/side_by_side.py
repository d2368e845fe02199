"""Figure 1 of Loo et al. (2023): reconstructions above the training images they come nearest to."""

from dataclasses import dataclass
from typing import Any

from exhume.records.comparison import GOOD
from exhume.report.gallery import image_rows
from exhume.studies.grid import PAPER, Effort
from exhume.studies.study import Bench, Findings, Study
from exhume.studies.trial import Trial, at_hand


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Settings of the figure."""

    sources: tuple[str, ...]
    size: int
    width: int
    pictures: int = 20
    effort: Effort = Effort()  # noqa: RUF009 - frozen


def side_by_side(settings: Gallery, bench: Bench) -> Findings:
    """Show pairs from the best to the worst of all, evenly spaced, so that failures are seen as well."""
    bench.cells = len(settings.sources)
    numbers: dict[str, Any] = {}
    figures = {}
    for source in map(at_hand, settings.sources):
        trial = Trial(
            source=source, size=settings.size, width=settings.width, attack=settings.effort.attack(settings.size),
            stop_loss=settings.effort.stop_loss, schedule=settings.effort.schedule, seed=bench.seed,
            pictures=settings.pictures,
        )  # fmt: skip
        found = trial.run(bench)
        images = {"reconstructed": found.pop("reconstructed"), "trained on": found.pop("originals")}
        good = {"reconstructed": [place for place, error in enumerate(found["pair_squares"]) if error < GOOD]}
        figures[f"figure1-{source}"] = image_rows(images, (0.0, 1.0), good)
        numbers[source] = found
    return Findings(
        numbers=numbers,
        figures=figures,
        table=(
            ("data", "images", "width", "good", "fine", "held out"),
            [
                (
                    source,
                    str(settings.size),
                    str(settings.width),
                    *(str(found[k]) for k in ("good", "fine", "null_good")),
                )
                for source, found in numbers.items()
            ],
        ),
        summary=" ".join(_sentence(source, settings, found) for source, found in numbers.items())
        + " The paper calls its own, of networks 4096 wide, visually indistinguishable.",
    )


def _sentence(source: str, settings: Gallery, found: dict[str, Any]) -> str:
    return (
        f"Of {settings.size} images of {source} at width {settings.width}, {found['good']} come out good and "
        f"{found['fine']} such that no eye tells them apart ({found['null_good']} held-out images are as near)."
    )


SIDE_BY_SIDE = Study(
    name="figure1",
    shows="reconstructions beside the nearest training images (Loo et al. 2023, Figure 1)",
    presets={
        "smoke": Gallery(sources=("digits",), size=8, width=64, pictures=5, effort=Effort(steps=60, stop_loss=1e-4)),
        "cpu": Gallery(sources=("mnist or digits", "cifar-10 or faces"), size=20, width=512),
        "gpu": Gallery(
            sources=("mnist", "cifar-10"), size=100, width=4096, effort=Effort(steps=3000, precision="tf32")
        ),
        "paper": Gallery(sources=("mnist", "cifar-10"), size=100, width=4096, effort=PAPER),
    },
    measure=side_by_side,
)
