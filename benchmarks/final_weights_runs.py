"""Every run of the attack on final weights by itself: what an attacker can measure of it, and what it recovered.

    PYTHONPATH=src python benchmarks/final_weights_runs.py --out DIR --data-dir DIR --seconds 450

Networks of Buzaglo et al. (2023) on CIFAR-10 are trained as in ``exhume reproduce max-margin-cifar --preset gpu``. Runs
with settings drawn at random go side by side. For every run its settings, its residual and the agreement of its
candidates with other runs are saved, and, for evaluation only, the similar images, so that the choice of an attacker
and that of an oracle can be compared afterwards.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import numpy as np
import torch
from final_weights_step import pose
from presets import FinalWeightsCase

from exhume.attacks.stationarity.candidates import to_pixels
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.runs import FinishedRuns, Knobs, draw_starts, minimise_runs
from exhume.clues.clues import clues_of
from exhume.core.correlation import standardise
from exhume.core.devices import resolve_device
from exhume.data.loading import load
from exhume.evaluation.distances import UnitScale, ssim
from exhume.optimise import Adam
from exhume.optimise.precision import AnyPrecision
from exhume.optimise.runs import Runs
from exhume.optimise.stepping import stepper, tf32_products
from exhume.records import AttackerView, Dataset, count_outputs
from exhume.training import train
from exhume.training.recipes import weight_decay_recipe

RANGES = {
    "input_rate": (0.003, 0.3),
    "multiplier_rate": (0.003, 0.3),
    "init_std": (0.003, 0.3),
    "floor": (0.01, 0.5),
    "sharpness": (10.0, 1000.0),
}
"""Ranges of settings, wider than those of the attack."""
SUPPORTING = 0.8
"""Correlation from which a candidate of another run supports a candidate."""


@dataclass(frozen=True)
class Variant:
    """A way to search: settings of the attack besides those that are drawn."""

    name: str
    runs: int
    steps: int = 4000
    settings: dict[str, Any] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges that differ from the usual ones."""


WIDE = {"oversampling": 2.0}
"""Two candidates per image, as in the papers."""
NARROW = {"input_rate": (0.005, 0.05), "multiplier_rate": (0.003, 0.03), "init_std": (0.02, 0.2), "floor": (0.02, 0.5)}
"""Ranges in which runs with all ranges recovered most."""
SOFT, SHARP = NARROW | {"sharpness": (8.0, 60.0)}, NARROW | {"sharpness": (30.0, 300.0)}


def smooth(runs: int, ranges: dict[str, tuple[float, float]], *weights: float) -> tuple[Variant, ...]:
    """Return variants that differ in the weight of smoothness."""
    return tuple(Variant(f"smooth {one:g}", runs, 3000, WIDE | {"smoothness": one}, ranges) for one in weights)


def coloured(runs: int, ranges: dict[str, tuple[float, float]], *weights: float) -> tuple[Variant, ...]:
    """Return variants in which neighbouring colour channels differ as little as neighbouring pixels."""
    settings = WIDE | {"colour": 1.0}
    return tuple(Variant(f"colour {one:g}", runs, 3000, settings | {"smoothness": one}, ranges) for one in weights)


def many(runs: int, steps: int, ranges: dict[str, tuple[float, float]], weight: float, name: str = "many") -> Variant:
    """Return a variant with colours, of more and shorter runs."""
    settings = WIDE | {"colour": 1.0, "smoothness": weight}
    return Variant(f"{name} colour {weight:g}", runs, steps, settings, ranges)


ONE_EACH = {"smoothness": 1.0}
ALL_RIVALS = Variant("all rivals", 24, 3000, WIDE | {"rivals": "all"}, SOFT)
CASES: dict[str, tuple[str, float, tuple[Variant, ...]]] = {
    "binary": (
        "animal-vehicle",
        0.0,
        (
            *smooth(32, SOFT, 1.0, 0.0, 0.3, 3.0, 10.0, 0.1),
            *coloured(32, SOFT, 1.0, 0.3, 3.0),
            Variant("one each", 32, 3000, ONE_EACH, SOFT),
            Variant("all ranges", 128, settings=WIDE),
        ),
    ),
    "binary-decay": (
        "animal-vehicle",
        5e-4,
        (
            *smooth(24, SHARP, 1.0, 0.0, 0.3, 3.0, 0.1),
            *coloured(24, SHARP, 1.0, 0.3, 3.0),
            many(72, 1000, SHARP, 0.3),
            many(72, 3000, SHARP, 0.3, "more"),
            Variant("one each", 24, 3000, ONE_EACH, SHARP),
            Variant("all ranges", 128, settings=WIDE),
        ),
    ),
    "ten": (
        "all",
        0.0,
        (
            *smooth(24, SOFT, 1.0, 0.0, 0.3, 3.0),
            *coloured(24, SOFT, 1.0, 0.3, 3.0),
            many(72, 1000, SOFT, 3.0),
            ALL_RIVALS,
            Variant("all ranges", 128, settings=WIDE),
        ),
    ),
    "ten-decay": (
        "all",
        5e-4,
        (
            *smooth(24, SHARP, 1.0, 0.0, 0.3, 3.0),
            *coloured(24, SHARP, 1.0, 0.3, 3.0),
            many(72, 1000, SHARP, 3.0),
            replace(ALL_RIVALS, ranges=SHARP),
            Variant("all ranges", 128, settings=WIDE),
        ),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--variants", help="Names of the variants to measure; all by default.")
    parser.add_argument("--seconds", type=float, default=450.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--train-steps", type=int, default=20_000)
    parser.add_argument("--shrink-runs", type=int, default=1, help="Divide runs and steps by this.")
    parser.add_argument("--runs-at-once", type=int, default=64)
    parser.add_argument("--precisions", default="half", help="Each variant is measured in all of them.")
    parser.add_argument("--timing", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    device = resolve_device(arguments.device)
    summary: dict[str, Any] = {}
    file = arguments.out / f"{arguments.cases.replace(',', '-')}.json"
    if arguments.timing:
        summary["timing"] = list(time_steps(device))
        file.write_text(json.dumps(summary, indent=1))
    names = arguments.cases.split(",")
    for place, name in enumerate(names):
        left = arguments.seconds - (time.perf_counter() - started)
        deadline = time.perf_counter() + left / (len(names) - place)
        summary[name] = measure_case(name, arguments, device, deadline)
        file.write_text(json.dumps(summary, indent=1))


def measure_case(name: str, arguments: argparse.Namespace, device: torch.device, deadline: float) -> dict[str, Any]:
    """Train the network of a case and measure all its variants until the deadline."""
    classes, decay, variants = CASES[name]
    images = load(
        "cifar-10", classes=classes, size=arguments.size, test=0, seed=arguments.seed, data_dir=arguments.data_dir
    )
    data = replace(images, offset=images.train.inputs.mean(dim=(0, 2, 3)).reshape(-1, 1, 1))
    recipe = weight_decay_recipe(
        loss="ce" if classes == "all" else "bce",
        weight_decay=decay,
        width=arguments.width,
        steps=arguments.train_steps,
    )
    started = time.perf_counter()
    victim = train(data, seed=arguments.seed, device=str(device), **recipe)
    seconds = time.perf_counter() - started
    print(f"{name}: trained in {seconds:.1f} s, loss {victim.result['loss']:.2e}", flush=True)
    view = replace(victim.view(), initial=None).to(device)
    span = clues_of(view).span
    rows: dict[str, Any] = {"training_seconds": seconds, "training_loss": victim.result["loss"], "variants": {}}
    rows["span"] = None if span is None else span.rank
    print(f"{name}: span {rows['span']}, random above {clues_of(view).upper_layers_look_random}", flush=True)
    arrays: dict[str, np.ndarray] = {}
    chosen = None if arguments.variants is None else arguments.variants.split(",")
    for variant in variants:
        if chosen is not None and variant.name not in chosen:
            continue
        if time.perf_counter() > deadline:
            print(f"{name}: no time for {variant.name}", flush=True)
            continue
        for precision in arguments.precisions.split(","):
            row, own = measure_variant(variant, view, data, precision, arguments)
            label = f"{variant.name}, {precision}"
            rows["variants"][label] = row
            arrays |= {f"{label}/{key}": value for key, value in own.items()}
            np.savez_compressed(arguments.out / f"{name}.npz", **arrays)  # type: ignore[arg-type]
            print(f"{name}, {label}: {json.dumps(row)}", flush=True)
    return rows


def measure_variant(
    variant: Variant, view: AttackerView, data: Dataset, precision: AnyPrecision, arguments: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run a variant with random settings and score every run."""
    shrink = arguments.shrink_runs
    runs, steps = max(2, variant.runs // shrink), max(10, variant.steps // shrink)
    attack = MaxMargin(precision=precision, edges=False, **variant.settings)
    generator = torch.Generator().manual_seed(arguments.seed)
    span = attack._span(view)
    candidates = attack.candidates
    if candidates is None:
        assert span is not None
        candidates = max(2, round(attack.oversampling * span.rank))
    problem = attack._problem(view, candidates, span, generator)
    outputs = count_outputs(view.model, view.input_shape)
    knobs = Knobs.draw(RANGES | variant.ranges, runs, generator)
    started = time.perf_counter()
    parts = []
    for chunk in torch.split(torch.arange(runs), arguments.runs_at_once):
        own = knobs.take(chunk)
        start = draw_starts(problem, candidates, outputs, own, generator)
        parts.append(minimise_runs(problem, start, own, steps=steps, precision=precision))
    found = FinishedRuns.join(parts)
    seconds = time.perf_counter() - started
    row, arrays = score_runs(problem, found, view, data)
    row |= {
        "candidates": candidates, "runs": runs, "steps": steps, "seconds": seconds,
        "score_seconds": time.perf_counter() - started - seconds, "dimension": problem.space.dimension,
        "ms_per_step_and_run": 1e3 * seconds / steps / runs,
        "settings": [knobs.row(run) for run in range(runs)],
    }  # fmt: skip
    return row, arrays


def score_runs(
    problem: StationarityProblem, found: FinishedRuns, view: AttackerView, data: Dataset
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what an attacker sees of every run and candidate, and, for evaluation, what is similar to an image."""
    scale = UnitScale.of(data)
    size = len(data.train)
    images = scale(torch.cat([data.train.inputs, data.holdout.inputs[: 2 * size]])).to(view.device).float()
    coarse = standardise(torch.nn.functional.avg_pool2d(images, 2))
    runs, count = found.free.shape[:2]
    everything, correlations, similarities = [], [], []
    own: dict[str, list[torch.Tensor]] = {"correlation": [], "image": [], "similarity": [], "roughness": []}
    for free in found.free:
        inputs = problem.inputs(free)
        everything.append(standardise(inputs).half())
        pixels = scale(to_pixels(view, inputs, stretch=problem.space.constant is None).cpu()).to(view.device).float()
        table = standardise(torch.nn.functional.avg_pool2d(pixels, 2)) @ coarse.T
        table = table.nan_to_num(0.0)
        best, place = table.max(0)
        correlations.append(best.cpu())
        similarities.append(ssim(pixels[place], images).cpu())
        best, place = table[:, :size].max(1)
        own["correlation"].append(best.cpu())
        own["image"].append(place.cpu())
        own["similarity"].append(ssim(pixels, images[place]).cpu())
        rough = pixels.diff(dim=-1).square().sum((1, 2, 3)) + pixels.diff(dim=-2).square().sum((1, 2, 3))
        own["roughness"].append((rough / pixels.sub(pixels.mean((2, 3), keepdim=True)).square().sum((1, 2, 3))).cpu())
    unit = torch.cat(everything)
    run_of = torch.arange(runs, device=unit.device).repeat_interleave(count)
    agreement, support = [], []
    for rows in torch.split(torch.arange(len(unit), device=unit.device), 4096):
        table = (unit[rows] @ unit.T).float().reshape(len(rows), runs, count).amax(2)
        table[torch.arange(len(rows), device=unit.device), run_of[rows]] = 0.0
        agreement.append(table.amax(1).cpu())
        support.append((table > SUPPORTING).sum(1).cpu())
    best, alike = torch.stack(correlations), torch.stack(similarities)
    is_similar = alike > 0.4
    pooled = alike.gather(0, best.argmax(0, keepdim=True))[0] > 0.4
    residuals = found.residuals
    least = residuals.argsort()
    per_run = is_similar[:, :size].sum(1)
    by_run = torch.cat(agreement).reshape(runs, count).mean(1)
    row = {
        "similar_of_pool": int(pooled[:size].sum()),
        "held_out_of_pool": int(pooled[size : 2 * size].sum()),
        "similar_of_least_residual": int(per_run[least[0]]),
        "similar_of_most_agreeing": int(per_run[by_run.argmax()]),
        "similar_of_oracle": int(per_run.max()),
        "similar_in_any_run": int(is_similar[:, :size].any(0).sum()),
        "held_out_in_any_run": int(is_similar[:, size : 2 * size].any(0).sum()),
        "residuals": [round(one, 6) if one < 1e30 else None for one in residuals.tolist()],
        "similar": per_run.tolist(),
        "held_out": is_similar[:, size : 2 * size].sum(1).tolist(),
        "agreement": [round(one, 4) for one in by_run.tolist()],
    }
    half = torch.float16
    arrays = {
        "best": best.to(half), "ssim": alike.to(half), "agreement": torch.cat(agreement).reshape(runs, count).to(half),
        "support": torch.cat(support).reshape(runs, count).to(torch.uint8),
        "candidate_correlation": torch.stack(own["correlation"]).to(half),
        "candidate_image": torch.stack(own["image"]).to(torch.int16),
        "candidate_similarity": torch.stack(own["similarity"]).to(half),
        "roughness": torch.stack(own["roughness"]).to(half),
    }  # fmt: skip
    return row, {key: value.numpy() for key, value in arrays.items()}


def time_steps(device: torch.device) -> Iterator[dict[str, Any]]:
    """Measure steps per second by the number of runs: with CUDA graphs, step by step, and by kernel."""
    is_gpu = device.type == "cuda"
    size, width = (500, 1000) if is_gpu else (10, 40)
    for upper, runs in ((0.0, 1), (0.0, 16), (0.0, 64), (1.0, 1), (1.0, 16), (1.0, 64)):
        case = FinalWeightsCase(size=size, width=width, pixels=3072, outputs=1, runs=runs, upper_layers=upper)
        problem, start = pose(case, str(device))
        sharpness, floor = (torch.full((runs,), value).to(device) for value in (100.0, 0.1))

        def as_runs(
            posed: StationarityProblem,
            *,
            coarse: float = 1.0,
            start: tuple[torch.Tensor, ...] = start,
            knobs: tuple[torch.Tensor, ...] = (sharpness, floor),
            runs: int = runs,
        ) -> Runs:
            objective: Callable[..., Any] = lambda variables, _: posed.objective(*variables, *knobs)  # noqa: E731
            adam = Adam(steps=10_000, learning_rates=(1e-4, 1e-4), coarse_share=coarse)
            return Runs(objective, objective, start, adam, [1.0] * runs)

        row: dict[str, Any] = {"upper_layers": upper, "runs": runs, "candidates": case.candidates}
        ways: dict[str, Callable[[], Runs]] = {
            "graph, tf32": lambda problem=problem: as_runs(problem),
            "eager, tf32": lambda problem=problem: as_runs(problem),
            "graph, float32": lambda problem=problem: as_runs(problem, coarse=0.0),
            "graph, half": lambda problem=problem: as_runs(problem.shortened()),
        }
        for way, make in ways.items():
            try:
                row[way] = time_one(make(), eager=way.startswith("eager"), is_gpu=is_gpu)
            except Exception as error:  # a way that this machine does not have
                row[way] = f"{type(error).__name__}: {str(error)[:200]}"
        if runs == 16 and is_gpu:
            row["kernels"] = profile(as_runs(problem))
        print("timing", json.dumps(row), flush=True)
        yield row


def time_one(runs: Runs, *, eager: bool, is_gpu: bool) -> float:
    """Return milliseconds per step."""
    warm, steps = (8, 40) if is_gpu else (2, 3)
    with torch.no_grad(), stepper(runs) as advance:
        if eager:
            advance = functools.partial(take_one_by_one, runs)
        advance(warm)
        if is_gpu:
            torch.cuda.synchronize()
        started = time.perf_counter()
        advance(steps)
        if is_gpu:
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - started) / steps


def take_one_by_one(runs: Runs, count: int) -> None:
    """Take steps without a CUDA graph."""
    with tf32_products(runs.is_coarse):
        for _ in range(count):
            runs.take_step()


def profile(runs: Runs) -> list[tuple[str, float, int]]:
    """Return the kernels that take most time of five steps: name, milliseconds per step, calls per step."""
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        torch.backends.cuda.matmul.allow_tf32 = True
        for _ in range(5):
            runs.take_step()
        torch.cuda.synchronize()
        torch.backends.cuda.matmul.allow_tf32 = False
    events = sorted(seen.key_averages(), key=lambda one: -one.self_device_time_total)[:14]
    return [(one.key[:90], one.self_device_time_total / 5e3, one.count // 5) for one in events]


if __name__ == "__main__":
    main()
