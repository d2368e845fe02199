"""Measure everything in one run and print a table of ratios: ours against plain PyTorch, and the paper's recipe.

    PYTHONPATH=src python benchmarks/all.py [--preset small|cpu|gpu] [--out DIR] [--only step,kernels] [--seed 0]

Rows are printed and written to ``benchmarks.json`` as they are measured, so a run that is cut short keeps its rows.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from attack_step import compare_compiled, compare_memory, compare_step, fit_growth
from final_weights_step import compare_final_weights
from measuring import clock_for, seconds_of
from plain_torch import jacobian_contraction
from presets import PRESETS, Preset, Row, Victim
from weight_difference import count_recovered

import exhume
from distillation import our_steps, textbook_steps
from exhume.attacks import GateCertificate, Restarted, WeightDifference
from exhume.distillation.kip import KIP, RKIP
from exhume.kernels import InfiniteNTK, empirical_ntk
from exhume.records import AttackerView


def compare_quality(preset: Preset, seed: int) -> Iterator[Row]:
    """Compare the seconds until as many good images as the published recipe finds, and until a certificate."""
    for victim in preset.victims:
        yield from _compare_quality_of(victim, preset, seed)


def _compare_quality_of(victim: Victim, preset: Preset, seed: int) -> Iterator[Row]:
    data, view = _train(victim, preset, seed)
    setting = f"{victim.source}, N = {victim.size}, W = {victim.width}, standard dynamics"
    recipe = replace(WeightDifference.published(), steps=preset.recipe_steps)
    replace(recipe, steps=30).run(view, seed=seed, device=preset.device)  # the first use of a device is not timed
    published = recipe.run(view, seed=seed, device=preset.device)
    reached = count_recovered(published, data)
    goals = {
        f"the published recipe ({preset.recipe_steps} steps, this engine)": (published.seconds, reached["good"]),
        **({} if victim.released is None else {"the released code, as measured before": victim.released}),
    }
    precision = "mixed" if preset.device == "cuda" else "float32"
    for steps in preset.our_steps:
        ours = WeightDifference(steps=steps, precision=precision).run(view, seed=seed, device=preset.device)
        got = count_recovered(ours, data)
        is_last = steps == preset.our_steps[-1]
        for label, (seconds, good) in list(goals.items()):
            if got["good"] >= good or is_last:
                del goals[label]
                short = "" if got["good"] >= good else "; FALLS SHORT"
                yield Row(
                    what=f"time to the quality of {label}", setting=setting, ours=ours.seconds, theirs=seconds,
                    unit="s", ratio=seconds / ours.seconds,
                    note=f"{good} good; ours {steps} steps, {got['good']} good, {got['fine']} fine, "
                    f"null {got['null']}{short}",
                )  # fmt: skip
        if not goals:
            break
    if victim.is_certified:
        proof = GateCertificate().run(view, seed=seed, device=preset.device)
        exact = f"{int(proof.certified.sum())} certified, {count_recovered(proof, data)['fine']} fine"
        for label, other in (("the published recipe", published), ("our search", ours)):
            yield Row(
                what=f"certificate against {label}", setting=setting, ours=proof.seconds, theirs=other.seconds,
                unit="s", ratio=other.seconds / proof.seconds, note=exact,
            )  # fmt: skip


def _train(victim: Victim, preset: Preset, seed: int) -> tuple[exhume.Dataset, AttackerView]:
    data = exhume.load(victim.source, classes="odd-even", size=victim.size, test=0, seed=seed)
    model = exhume.MLP(width=victim.width)
    return data, exhume.train(data, model=model, device=preset.device, seed=seed).view()


def compare_restarts(preset: Preset, seed: int) -> Iterator[Row]:
    """Compare many restarts side by side with one run."""
    victim = preset.restart_victim
    _, view = _train(victim, preset, seed)
    precisions = ("float32", "mixed", "tf32") if preset.device == "cuda" else ("float32",)
    for precision in precisions:
        attack = WeightDifference(steps=preset.restart_steps, precision=precision)  # type: ignore[arg-type]
        seconds: list[float] = []
        once = {"device": preset.device, "rounds": 1}
        for times in (1, preset.restarts):
            work = Restarted(attack, times=times, at_once=times)
            seconds += seconds_of(lambda work=work: work.run(view, seed=seed, device=preset.device), **once)
        yield Row(
            what=f"{preset.restarts} restarts side by side against one, {precision}",
            setting=f"{victim.source}, N = {victim.size}, W = {victim.width}, {preset.restart_steps} steps",
            ours=seconds[1], theirs=seconds[0], unit="s", ratio=seconds[1] / seconds[0],
            note=f"times one run; one after another would take {preset.restarts}",
        )  # fmt: skip


def compare_kernels(preset: Preset) -> Iterator[Row]:
    """Compare tangent kernels with Jacobians contracted by torch.func."""
    network = exhume.MLP(width=preset.width).build((preset.pixels,), 1, torch.Generator().manual_seed(0))
    network = network.to(preset.device)
    weights = {name: weight.detach() for name, weight in network.state_dict().items()}
    inputs = torch.randn(preset.kernel_size, preset.pixels, generator=torch.Generator().manual_seed(1))
    inputs = inputs.to(preset.device)
    analytic = InfiniteNTK()
    with torch.no_grad():
        fast, slow = empirical_ntk(network, weights, inputs), jacobian_contraction(network, weights, inputs)
        torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-2)
        closed, contraction, infinite = seconds_of(
            lambda: empirical_ntk(network, weights, inputs),
            lambda: jacobian_contraction(network, weights, inputs),
            lambda: analytic(inputs),
            device=preset.device,
            rounds=min(3, preset.rounds),  # a contraction takes seconds
        )
    setting = f"N = {preset.kernel_size}, W = {preset.width}, d = {preset.pixels}"
    for label, seconds in (("empirical", closed), ("analytic", infinite)):
        yield Row(
            what=f"{label} tangent kernel against Jacobian contraction", setting=setting, ours=1e3 * seconds,
            theirs=1e3 * contraction, unit="ms", ratio=contraction / seconds,
        )  # fmt: skip


def compare_distillation(preset: Preset) -> Iterator[Row]:
    """Compare steps of KIP and RKIP with textbook autograd."""
    generator = torch.Generator().manual_seed(0)
    distilled, size = (4, 10) if preset.pixels < 100 else (20, 500)
    examples = torch.rand(size, preset.pixels, generator=generator).sub(0.3).to(preset.device)
    answers = torch.randn(size, 1, generator=generator).sign().to(preset.device)
    start = (0.2 * torch.randn(distilled, preset.pixels, generator=generator)).to(preset.device)
    targets = (2.0 * (torch.arange(distilled) % 2)[:, None] - 1.0).to(preset.device)
    for method in (KIP(), RKIP()):
        ours, plain = (make(method, start, targets, examples, answers) for make in (our_steps, textbook_steps))
        steps = 10 * preset.steps
        fast, slow = seconds_of(
            lambda ours=ours, steps=steps: ours(steps), lambda plain=plain, steps=steps: plain(steps),
            device=preset.device, rounds=preset.rounds,
        )  # fmt: skip
        yield Row(
            what=f"{type(method).__name__} step against textbook autograd",
            setting=f"{size} → {distilled} images of {preset.pixels} pixels", ours=1e3 * fast / steps,
            theirs=1e3 * slow / steps, unit="ms", ratio=slow / fast,
        )  # fmt: skip


MEASUREMENTS: dict[str, Callable[..., Iterator[Row]]] = {
    "step": compare_step,
    "kernels": compare_kernels,
    "distillation": compare_distillation,
    "restarts": compare_restarts,
    "memory": compare_memory,
    "growth": fit_growth,
    "quality": compare_quality,
    "final-weights": compare_final_weights,
    "compiled": compare_compiled,
}
USUAL = [name for name in MEASUREMENTS if name != "compiled"]
"""All measurements except the one that needs a compiler."""


def parse_names(words: str) -> list[str]:
    """Parse comma-separated names of measurements."""
    names = [word.strip() for word in words.split(",") if word.strip()]
    for name in names:
        if name not in MEASUREMENTS:
            raise argparse.ArgumentTypeError(f"there is no {name!r}; choose from {', '.join(MEASUREMENTS)}")
    if not names:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(MEASUREMENTS)}")
    return names


WHAT, SETTING = 112, 58
"""Widths of the first two columns of the printed table, in characters."""


def print_row(row: Row) -> None:
    theirs = "" if row.theirs is None else f"{row.theirs:10.3g}"
    ratio = "" if row.ratio is None else f"{row.ratio:8.2f}"
    print(
        f"{row.what:{WHAT}} {row.setting:{SETTING}} {row.ours:10.3g} {theirs} {row.unit:4} {ratio}  {row.note}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write; return 1 if a measurement failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--preset", choices=PRESETS, default="cpu")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out/benchmarks")))
    parser.add_argument("--only", type=parse_names, default=USUAL, help=f"from {', '.join(MEASUREMENTS)}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    preset = PRESETS[options.preset]
    cuda = preset.device == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("there is no CUDA device on this machine; choose --preset cpu or small")
    only = "" if options.only == USUAL else f" --only {','.join(options.only)}"
    results: dict[str, Any] = {
        "command": f"python benchmarks/all.py --preset {options.preset}{only} --seed {options.seed}",
        "machine": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "clock": clock_for(preset.device).__name__,
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
        "rows": [],
    }
    print(results["machine"], f"torch {torch.__version__}, {results['threads']} threads, load {results['load']:.1f}")
    print(f"{'':{WHAT}} {'':{SETTING}} {'ours':>10} {'theirs':>10} {'':4} {'ratio':>8}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        measure = MEASUREMENTS[name]
        try:
            for row in measure(preset, options.seed) if name in ("quality", "restarts") else measure(preset):
                print_row(row)
                results["rows"].append({"measurement": name, **asdict(row)})
                (options.out / "benchmarks.json").write_text(json.dumps(results, indent=2) + "\n")
        except Exception as error:  # a measurement that fails must not stop the others
            print(f"{name} failed: {type(error).__name__}: {error}", flush=True)
            results.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
            (options.out / "benchmarks.json").write_text(json.dumps(results, indent=2) + "\n")
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
