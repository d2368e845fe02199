"""Figure 1 of Loo et al. (2023): reconstructions above the nearest training images."""

from dataclasses import dataclass
from typing import Any

from exhume.records.comparison import GOOD
from exhume.report.gallery import draw_image_rows
from exhume.studies.grid import PAPER, Effort
from exhume.studies.study import Study, StudyResult, StudyRun
from exhume.studies.tasks import first_available


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Settings of Figure 1."""

    sources: tuple[str, ...]
    size: int
    width: int
    pictures: int = 20
    effort: Effort = Effort()  # noqa: RUF009 - frozen


def measure(settings: Gallery, run: StudyRun) -> StudyResult:
    """Show pairs evenly spaced from the best to the worst, so that failures are visible too."""
    run.cells = len(settings.sources)
    numbers: dict[str, Any] = {}
    figures = {}
    for source in map(first_available, settings.sources):
        trial = settings.effort.trial(source, settings.size, settings.width, run.seed, pictures=settings.pictures)
        found = trial.run(run)
        images = {"reconstructed": found.pop("reconstructed"), "trained on": found.pop("originals")}
        good = {"reconstructed": [place for place, error in enumerate(found["pair_squares"]) if error < GOOD]}
        figures[f"figure1-{source}"] = draw_image_rows(images, (0.0, 1.0), good)
        numbers[source] = found
    size, width = str(settings.size), str(settings.width)
    counts = ("good", "fine", "null_good")
    return StudyResult(
        numbers=numbers,
        figures=figures,
        table=(
            ("data", "images", "width", "good", "fine", "held out"),
            [(source, size, width, *(str(found[key]) for key in counts)) for source, found in numbers.items()],
        ),
        summary=" ".join(_sentence(source, settings, found) for source, found in numbers.items())
        + " The paper calls its own reconstructions, from networks of width 4096, visually indistinguishable.",
    )


def _sentence(source: str, settings: Gallery, found: dict[str, Any]) -> str:
    return (
        f"Of {settings.size} images of {source} at width {settings.width}, {found['good']} reconstructions are good "
        f"and {found['fine']} look the same as the original ({found['null_good']} held-out images are as near)."
    )


STUDIES = (
    Study(
        name="figure1",
        presets={
            "smoke": Gallery(
                sources=("digits",), size=8, width=64, pictures=5, effort=Effort(steps=60, stop_loss=1e-4)
            ),
            "cpu": Gallery(sources=("mnist or digits", "cifar-10 or faces"), size=20, width=512),
            "gpu": Gallery(
                sources=("mnist", "cifar-10"), size=100, width=4096, effort=Effort(steps=3000, precision="tf32")
            ),
            "paper": Gallery(sources=("mnist", "cifar-10"), size=100, width=4096, effort=PAPER),
        },
        measure=measure,
    ),
)
