"""Figures 6 to 9 of Loo et al. (2023): too few candidates, sizes, attacks on what distillation leaves, pictures."""

import statistics
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from exhume.attacks.weight_difference import WeightDifference
from exhume.evaluation import evaluate, find_copies
from exhume.records import Dataset
from exhume.report.gallery import image_rows
from exhume.studies.drawing import named_lines
from exhume.studies.loo2023.distilled import (
    METHODS,
    Recipe,
    infinite_accuracy,
    load_task,
    network_accuracy,
    network_trained_on,
    slug,
)
from exhume.studies.study import Bench, Findings, Study

SMALL = Recipe(distilled=4, width=64, steps=20, kip_steps=20, kip_rate=0.02, finite_steps=10, training_steps=50)
LAPTOP = Recipe(width=512, steps=1200, kip_steps=2000, finite_steps=500, training_steps=2000)
QUICK_GPU = Recipe(steps=1500, kip_steps=2500, finite_steps=1000, training_steps=2000)


@dataclass(frozen=True, kw_only=True)
class Few:
    """Settings of figure 6: reconstruct fewer images than were trained on."""

    source: str
    size: int
    test: int | None = None
    recipe: Recipe = SMALL


def too_few(settings: Few, bench: Bench) -> Findings:
    """Reconstruct too few images from a linearised network, and train another network on them."""
    bench.cells = 1
    data = load_task(settings.source, settings.size, bench.seed, settings.test)
    recipe = settings.recipe

    def work() -> dict[str, Any]:
        assert data.test is not None
        made = METHODS["RKIP-finite"](data, recipe, bench, bench.seed)
        original = network_trained_on(data, recipe, bench, bench.seed, lazy=True)
        again = network_trained_on(made, recipe, bench, bench.seed, lazy=False)
        copies = find_copies(made, data)
        return {
            "original_accuracy": network_accuracy(original, data, data.test),
            "retrained_accuracy": network_accuracy(again, made, data.test),
            "infinite_accuracy": infinite_accuracy(made, data.test, recipe.distilling_kernel, bench),
            "copies": copies.copied,
            "finding": copies.sentence,
            "images": made.train.inputs,
            "nearest": data.train.inputs[copies.nearest],
        }

    found = bench.cell(settings.source, work)
    numbers = {name: value for name, value in found.items() if not isinstance(value, Tensor)}
    return Findings(
        numbers=numbers,
        figures={"figure6": image_rows({"reconstructed": found["images"], "nearest": found["nearest"]}, data.bounds)},
        summary=(
            f"{recipe.distilled} images reconstructed from a network trained on {settings.size} "
            f"({numbers['original_accuracy']:.1f} %) train another one to {numbers['retrained_accuracy']:.1f} %; "
            f"{numbers['copies']} of them copy a training image."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Settings of figures 7 and 8: distil training sets of several sizes."""

    sources: tuple[str, ...]
    sizes: tuple[int, ...]
    splits: int = 1
    test: int | None = None
    recipe: Recipe = SMALL
    search_steps: int = 300
    """Of the attack on networks trained on distilled sets (figure 8)."""


DISTILLED = ("KIP", "RKIP", "RKIP 5% noise", "RKIP-finite")


def by_size(settings: Sizes, bench: Bench) -> Findings:
    """Measure the accuracy that distilled sets keep, against the size of what they were distilled from."""
    methods = ("full data", *DISTILLED)
    bench.cells = len(settings.sources) * len(settings.sizes) * len(methods) * settings.splits
    numbers: dict[str, Any] = {}
    for source in settings.sources:
        numbers[source] = {
            method: {
                str(size): statistics.fmean(
                    _accuracy_cell(settings, bench, source, method, size, bench.seed + split)["accuracy"]
                    for split in range(settings.splits)
                )
                for size in settings.sizes
            }
            for method in methods
        }
    figures = {
        f"figure7-{source}": named_lines(
            {method: ([float(size) for size in by], list(by.values())) for method, by in found.items()},
            x="training images distilled", y=f"test accuracy on {source}, per cent",
        )
        for source, found in numbers.items()
    }  # fmt: skip
    rows = [
        (source, method, *(f"{value:.1f}" for value in by.values()))
        for source, found in numbers.items()
        for method, by in found.items()
    ]
    return Findings(numbers=numbers, figures=figures, table=(("data", "trained on", *map(str, settings.sizes)), rows))


def _accuracy_cell(settings: Sizes, bench: Bench, source: str, method: str, size: int, seed: int) -> dict[str, Any]:
    def work() -> dict[str, Any]:
        data = load_task(source, size, seed, settings.test)
        assert data.test is not None
        made = METHODS[method](data, settings.recipe, bench, seed)
        view = network_trained_on(made, settings.recipe, bench, seed, lazy=False)
        return {
            "accuracy": network_accuracy(view, made, data.test),
            "infinite": infinite_accuracy(made, data.test, settings.recipe.distilling_kernel, bench),
        }

    return bench.cell(f"{source}/{slug(method)}-{size}-{seed}", work)


def after_distillation(settings: Sizes, bench: Bench) -> Findings:
    """Attack networks trained on distilled sets, and measure against the images those were distilled from."""
    methods = ("full data", *DISTILLED)
    bench.cells = len(settings.sources) * len(settings.sizes) * len(methods)
    numbers: dict[str, Any] = {}
    figures = {}
    for source in settings.sources:
        numbers[source] = {}
        for size in settings.sizes:
            cells = {method: _attacked_cell(settings, bench, source, method, size) for method in methods}
            numbers[source][str(size)] = cells
            lines = {m: ([1.0 + i for i in range(len(c["curve"]))], c["curve"]) for m, c in cells.items() if c["curve"]}
            figures[f"figure8-{source}-{size}"] = named_lines(
                lines, x=f"{size} original images, nearest first", y="squared distance", log_y=True
            )
    rows = [
        (source, size, method, *(str(cell[key]) for key in ("recovered", "good", "null_good", "copies")))
        for source, sizes in numbers.items()
        for size, cells in sizes.items()
        for method, cell in cells.items()
    ]
    head = (
        "data",
        "distilled from",
        "trained on",
        "recovered",
        "good",
        "held out, good",
        "copies in the distilled set",
    )
    return Findings(numbers=numbers, figures=figures, table=(head, rows))


def _attacked_cell(settings: Sizes, bench: Bench, source: str, method: str, size: int) -> dict[str, Any]:
    def work() -> dict[str, Any]:
        data = load_task(source, size, bench.seed, 0)
        made = METHODS[method](data, settings.recipe, bench, bench.seed)
        view = network_trained_on(made, settings.recipe, bench, bench.seed, lazy=False).to("cpu")
        attack = WeightDifference(candidates=2 * len(made.train), steps=settings.search_steps)
        found = attack.run(view, seed=bench.seed, device=bench.device, progress=bench.progress)
        evaluation = evaluate(found, data)
        assert evaluation.train is not None
        assert evaluation.holdout is not None
        assert evaluation.relative is not None
        return {
            "curve": evaluation.train.curve.clamp(min=1e-6).tolist(),
            "good": evaluation.train.good,
            "null_good": evaluation.holdout.good,
            "recovered": evaluation.relative.level(0.01).recovered,
            "chance": evaluation.relative.level(0.01).chance,
            "copies": find_copies(made, data).copied,
        }

    return bench.cell(f"{source}/{slug(method)}-{size}", work, needed=("null_good",))


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Settings of figure 9: distilled images beside the training images they come nearest to."""

    sources: tuple[str, ...]
    size: int
    recipe: Recipe = SMALL


def pictures(settings: Pictures, bench: Bench) -> Findings:
    """Draw distilled images of every method above their nearest training images, framed where they show one."""
    methods = ("KIP", "RKIP", "RKIP 5% noise")
    bench.cells = len(settings.sources) * len(methods)
    numbers: dict[str, Any] = {}
    figures = {}
    for source in settings.sources:
        data = load_task(source, settings.size, bench.seed, 0)
        rows: dict[str, Tensor] = {}
        framed: dict[str, list[int]] = {}
        numbers[source] = {}
        for method in methods:

            def work(method: str = method, data: Dataset = data) -> dict[str, Any]:
                made = METHODS[method](data, settings.recipe, bench, bench.seed)
                copies = find_copies(made, data)
                return {"images": made.train.inputs, "nearest": copies.nearest, "finding": copies.to_json()}

            cell = bench.cell(f"{source}/{slug(method)}", work)
            numbers[source][method] = cell["finding"]
            rows[method] = cell["images"]
            rows[f"nearest to {method}"] = data.train.inputs[cell["nearest"]]
            framed[method] = [pair[0] for pair in cell["finding"]["shown_pairs"]]
        figures[f"figure9-{source}"] = image_rows(rows, data.bounds, framed)
    return Findings(
        numbers=numbers,
        figures=figures,
        table=(
            ("data", "method", "copies", "shown", "finding"),
            [
                (
                    source,
                    method,
                    str(finding["copied_examples"]),
                    str(finding["shown_through_noise"]),
                    finding["sentence"],
                )
                for source, found in numbers.items()
                for method, finding in found.items()
            ],
        ),
    )


FIGURE6 = Study(
    name="figure6",
    shows="20 images reconstructed from a network trained on 500, and what they teach (Loo et al. 2023, Figure 6)",
    presets={
        "smoke": Few(source="digits", size=40, test=200),
        "cpu": Few(source="digits", size=300, recipe=LAPTOP),
        "gpu": Few(source="cifar-10", size=500, recipe=QUICK_GPU),
    },
    measure=too_few,
)
FIGURE7 = Study(
    name="figure7",
    shows="test accuracy after distilling ever larger sets to 20 images (Loo et al. 2023, Figure 7)",
    presets={
        "smoke": Sizes(sources=("digits",), sizes=(8,), test=200),
        "cpu": Sizes(sources=("digits",), sizes=(20, 50, 100, 200, 400), recipe=LAPTOP),
        "gpu": Sizes(sources=("mnist", "cifar-10"), sizes=(20, 50, 150, 500), recipe=QUICK_GPU),
    },
    measure=by_size,
)
FIGURE8 = Study(
    name="figure8",
    shows="what attacks recover of the original images after training on distilled ones (Loo et al. 2023, Figure 8)",
    presets={
        "smoke": Sizes(sources=("digits",), sizes=(8,), search_steps=10),
        "cpu": Sizes(sources=("digits",), sizes=(20, 50), recipe=LAPTOP),
        "gpu": Sizes(sources=("mnist", "cifar-10"), sizes=(20, 100), recipe=QUICK_GPU, search_steps=2000),
    },
    measure=after_distillation,
)
FIGURE9 = Study(
    name="figure9",
    shows="distilled images beside the training images they come nearest to (Loo et al. 2023, Figure 9)",
    presets={
        "smoke": Pictures(sources=("digits",), size=40),
        "cpu": Pictures(sources=("digits", "faces"), size=80, recipe=LAPTOP),
        "gpu": Pictures(sources=("mnist", "cifar-10"), size=500, recipe=QUICK_GPU),
    },
    measure=pictures,
)
DISTILLATION_FIGURES = (FIGURE6, FIGURE7, FIGURE8, FIGURE9)
