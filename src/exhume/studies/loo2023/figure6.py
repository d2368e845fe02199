"""Figure 6 of Loo et al. (2023): a reconstruction with too few candidates is a distilled set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exhume.evaluation import find_copies
from exhume.report.gallery import draw_image_rows
from exhume.studies.loo2023.distilled_sets import FULL, LAPTOP, METHODS, QUICK_GPU, SMALL, Recipe, train_network
from exhume.studies.loo2023.observations import Observation
from exhume.studies.metrics import infinite_width_accuracy, network_accuracy
from exhume.studies.study import Study, StudyResult, StudyRun, without_tensors
from exhume.studies.tasks import load_task


@dataclass(frozen=True, kw_only=True)
class Few:
    """Settings of Figure 6: reconstruct fewer images than were trained on."""

    source: str
    size: int
    test: int | None = None
    recipe: Recipe = SMALL


def measure(settings: Few, run: StudyRun) -> StudyResult:
    """Reconstruct too few images from a linearised network, and train another network on them."""
    run.cells = 1
    data = load_task(settings.source, settings.size, run.seed, settings.test)
    recipe = settings.recipe

    def work() -> dict[str, Any]:
        assert data.test is not None
        distilled = METHODS["RKIP-finite"](data, recipe, run, run.seed)
        original = train_network(data, recipe, run, run.seed, linearised=True)
        retrained = train_network(distilled, recipe, run, run.seed, linearised=False)
        copies = find_copies(distilled, data)
        return {
            "original_accuracy": network_accuracy(original, data.test),
            "retrained_accuracy": network_accuracy(retrained, data.test),
            "infinite_accuracy": infinite_width_accuracy(distilled, data.test, recipe.distilling_kernel, run.device),
            "copies": copies.copied,
            "finding": copies.sentence,
            "images": distilled.train.inputs,
            "nearest": data.train.inputs[copies.nearest],
        }

    found = run.cell(settings.source, work)
    numbers = without_tensors(found)
    images = {"reconstructed": found["images"], "nearest": found["nearest"]}
    return StudyResult(
        numbers=numbers,
        figures={"figure6": draw_image_rows(images, data.bounds)},
        summary=(
            f"{recipe.distilled} images reconstructed from a network trained on {settings.size} "
            f"({numbers['original_accuracy']:.1f} % accuracy) train another network to "
            f"{numbers['retrained_accuracy']:.1f} %; {numbers['copies']} of them copy a training image. "
            f"{few_images_teach_much(numbers).sentence}"
        ),
    )


def few_images_teach_much(numbers: Mapping[str, Any]) -> Observation:
    """Check that another network trains well on a reconstruction with too few candidates."""
    kept = numbers["retrained_accuracy"] / numbers["original_accuracy"]
    return Observation(
        states="20 reconstructions of 500 images teach almost as much as those (96 % of the accuracy on CIFAR-10)",
        holds=kept > 0.85,
        values={"share of the accuracy kept": kept, "copies": float(numbers["copies"])},
    )


STUDIES = (
    Study(
        name="figure6",
        presets={
            "smoke": Few(source="digits", size=40, test=200),
            "cpu": Few(source="digits", size=300, recipe=LAPTOP),
            "gpu": Few(source="cifar-10", size=500, recipe=QUICK_GPU),
            "paper": Few(source="cifar-10", size=500, recipe=FULL),
        },
        measure=measure,
    ),
)
