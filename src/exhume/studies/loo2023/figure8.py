"""Figure 8 of Loo et al. (2023): attacks on networks trained on distilled sets; Figure S4 is the same at every size."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exhume.attacks.weight_difference import WeightDifference
from exhume.evaluation import evaluate, find_copies
from exhume.studies.catalogue import Preset
from exhume.studies.drawing import named_lines
from exhume.studies.loo2023.distilled_sets import DISTILLED, FULL, LAPTOP, METHODS, QUICK_GPU, train_network
from exhume.studies.loo2023.figure7 import Sizes
from exhume.studies.loo2023.figures2_4_5 import SIZES
from exhume.studies.loo2023.observations import Observation
from exhume.studies.metrics import FPR
from exhume.studies.study import Study, StudyResult, StudyRun, slug
from exhume.studies.tasks import load_task


def measure(settings: Sizes, run: StudyRun, name: str = "figure8") -> StudyResult:
    """Attack networks trained on distilled sets, and compare with the images those were distilled from."""
    methods = ("full data", *DISTILLED)
    run.cells = len(settings.sources) * len(settings.sizes) * len(methods)
    numbers: dict[str, Any] = {}
    figures = {}
    for source in settings.sources:
        numbers[source] = {}
        for size in settings.sizes:
            cells = {method: _attack_distilled(settings, run, source, method, size) for method in methods}
            numbers[source][str(size)] = cells
            lines = {m: ([1.0 + i for i in range(len(c["curve"]))], c["curve"]) for m, c in cells.items() if c["curve"]}
            figures[f"{name}-{source}-{size}"] = named_lines(
                lines, x=f"{size} original images, nearest first", y="squared distance", log_y=True
            )
    rows = [
        (source, size, method, *(str(cell[key]) for key in ("recovered", "good", "null_good", "copies")))
        for source, sizes in numbers.items()
        for size, cells in sizes.items()
        for method, cell in cells.items()
    ]
    counts = ("recovered", "good", "held out, good", "copies in the distilled set")
    return StudyResult(
        numbers=numbers,
        figures=figures,
        table=(("data", "distilled from", "trained on", *counts), rows),
        summary=" ".join(one.sentence for one in only_rkip_reveals_originals(numbers)),
    )


def _attack_distilled(settings: Sizes, run: StudyRun, source: str, method: str, size: int) -> dict[str, Any]:
    def work() -> dict[str, Any]:
        data = load_task(source, size, run.seed)
        distilled = METHODS[method](data, settings.recipe, run, run.seed)
        view = train_network(distilled, settings.recipe, run, run.seed, linearised=False).to("cpu")
        attack = WeightDifference(candidates=2 * len(distilled.train), steps=settings.search_steps)
        evaluation = evaluate(run.attack(attack, view), data)
        assert evaluation.train is not None
        assert evaluation.holdout is not None
        assert evaluation.relative is not None
        level = evaluation.relative.level(FPR)
        return {
            "curve": evaluation.train.curve.clamp(min=1e-6).tolist(),
            "good": evaluation.train.good,
            "null_good": evaluation.holdout.good,
            "recovered": level.recovered,
            "chance": level.chance,
            "copies": find_copies(distilled, data).copied,
        }

    return run.cell(f"{source}/{slug(method)}-{size}", work, needed=("null_good",))


def only_rkip_reveals_originals(numbers: Mapping[str, Any]) -> list[Observation]:
    """Check that the attack finds original images after RKIP, and hardly any after the other methods.

    Good reconstructions decide, as in the paper's curves. The number of images that are nearer than held-out ones, good
    or not, is reported beside them.
    """
    found = []
    for source, sizes in numbers.items():
        total = sum(int(size) for size in sizes)
        good, recovered = (
            {
                name: float(sum(cells[name][key] for cells in sizes.values()))
                for name in ("KIP", "RKIP", "RKIP 5% noise")
            }
            for key in ("good", "recovered")
        )
        most = max(good["KIP"], good["RKIP 5% noise"])
        found.append(
            Observation(
                states="attacks find original images after RKIP, and hardly any after KIP or RKIP with noise",
                holds=good["RKIP"] > most and most <= 0.1 * total,
                values={f"{source}, good of {total} after {name}": count for name, count in good.items()}
                | {f"recovered at 1 % false positives after {name}": count for name, count in recovered.items()},
            )
        )
    return found


PRESETS: Mapping[Preset, Sizes] = {
    "smoke": Sizes(sources=("digits",), sizes=(8,), search_steps=10),
    "cpu": Sizes(sources=("digits",), sizes=(20, 50), recipe=LAPTOP),
    "gpu": Sizes(sources=("mnist", "cifar-10"), sizes=(20, 100), recipe=QUICK_GPU, search_steps=2000),
    "paper": Sizes(sources=("mnist", "cifar-10"), sizes=(20, 100, 200, 500), recipe=FULL, search_steps=80_000),
}
EVERY_SIZE: Mapping[Preset, Sizes] = {
    "smoke": PRESETS["smoke"],
    "cpu": replace(PRESETS["cpu"], sizes=(10, 20, 30, 50)),
    "gpu": replace(PRESETS["gpu"], sizes=(20, 50, 100, 200, 500)),
    "paper": replace(PRESETS["paper"], sizes=SIZES),
}
STUDIES = (
    Study(name="figure8", presets=PRESETS, measure=measure),
    Study(name="figureS4", presets=EVERY_SIZE, measure=functools.partial(measure, name="figureS4")),
)
