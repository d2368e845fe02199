"""Cost of one step of the attacks on final weights: runs side by side against one run that torch.func maps over them.

PYTHONPATH=src python benchmarks/all.py --preset cpu|gpu --only final-weights
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numerical_only  # noqa: F401 # before exhume
import torch
from measuring import peak_megabytes, seconds_of
from presets import FinalWeightsCase, Preset, Row

import exhume
from exhume.attacks.stationarity.final_weights import ALIGNMENT
from exhume.attacks.stationarity.multipliers import MarginMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.clues.known_loss import balanced_labels
from exhume.clues.search_space import SearchSpace
from exhume.core.devices import has_fast_bfloat16
from exhume.optimise import Adam, minimise_together
from exhume.records import AttackerView

Variables = tuple[torch.Tensor, ...]
Objective = Callable[[Variables, torch.Tensor], tuple[torch.Tensor, Variables]]
BOX = (-0.5, 0.5)


def pose(case: FinalWeightsCase, device: str) -> tuple[StationarityProblem, Variables]:
    """Pose the problem of random weights in a random subspace, whose steps cost as much as those of trained weights."""
    generator = torch.Generator().manual_seed(0)
    model = exhume.MLP(width=case.width, bias="first").build((case.pixels,), case.outputs, generator)
    view = AttackerView(
        model=model, final=dict(model.state_dict()), input_shape=(case.pixels,), bounds=BOX
    ).to(torch.device(device))  # fmt: skip
    basis = torch.linalg.qr(torch.randn(case.pixels, case.size, generator=generator)).Q.to(device)
    labels = balanced_labels(case.candidates, case.outputs, torch.device(device))
    multipliers = MarginMultipliers(labels, case.outputs)
    space = SearchSpace(case.pixels, basis, 1.0).aligned(ALIGNMENT)
    problem = StationarityProblem.of(view, space, multipliers, upper_layers=case.upper_layers)
    free = torch.randn(case.runs, case.candidates, problem.space.dimension, generator=generator)
    raw = torch.rand(case.runs, case.candidates, generator=generator)
    return problem.compacted(case.candidates), (free.to(device), raw.to(device))


def together(problem: StationarityProblem, knobs: Variables) -> Objective:
    """Return the objective of all runs, as the attacks compute it."""
    return lambda variables, _: problem.objective(variables[0], variables[1], *knobs)


def mapped(problem: StationarityProblem, knobs: Variables) -> Objective:
    """Return the objective of one run, mapped over all by torch.func, as the attacks computed it before."""
    evaluate = torch.func.vmap(replace(problem, compact_target=None).objective)
    return lambda variables, _: evaluate(*variables, *knobs)


def compare_final_weights(preset: Preset) -> Iterator[Row]:
    """Compare a step of all runs with the mapped one, in each precision, and its memory in chunks."""
    for case in preset.final_weights:
        problem, start = pose(case, preset.device)
        knobs = tuple(torch.linspace(low, high, case.runs).to(preset.device) for low, high in ((30, 300), (0.1, 0.5)))
        exact = Adam(steps=preset.steps, learning_rates=(1e-4, 1e-4), decay="none")
        coarse = replace(exact, coarse_share=1.0)
        values = [make(problem, knobs)(start, torch.zeros(()))[0] for make in (together, mapped)]
        torch.testing.assert_close(values[0], values[1], rtol=1e-3, atol=0)
        rounds_short = preset.device == "cpu" and has_fast_bfloat16()
        short = together(problem.rounded(torch.bfloat16) if rounds_short else problem, knobs)
        name = "bfloat16 products" if rounds_short else "tf32"
        works = {"mapped": (mapped(problem, knobs), exact), "float32": (together(problem, knobs), exact)}
        if preset.device == "cuda":
            works |= {"mapped, tf32": (mapped(problem, knobs), coarse)}
        if preset.device == "cuda" or rounds_short:
            works |= {name: (short, coarse)}

        def take_steps(objective: Objective, adam: Adam, start: Variables = start) -> Callable[[], object]:
            return lambda: minimise_together(objective, start, adam, scales=[1.0] * len(start[0]), coarse=objective)

        seconds = seconds_of(
            *(take_steps(*work) for work in works.values()), device=preset.device, rounds=preset.rounds
        )
        of = {label: 1e3 * second / preset.steps for label, second in zip(works, seconds, strict=True)}
        for ours, theirs in (("float32", "mapped"), (name, "mapped"), (name, "mapped, tf32")):
            if ours in of and theirs in of:
                yield Row(
                    what=f"step on final weights, {ours}, against one run {theirs}", setting=case.setting,
                    ours=of[ours], theirs=of[theirs], unit="ms", ratio=of[theirs] / of[ours],
                )  # fmt: skip
        few = Adam(steps=2, learning_rates=(1e-4, 1e-4))
        chunked = replace(problem, at_once=max(1, case.candidates // 8))
        parts, whole = (
            peak_megabytes(take_steps(together(one, knobs), few), preset.device) for one in (chunked, problem)
        )
        yield Row(
            what="memory of a step on final weights in 8 chunks of candidates, against all at once",
            setting=case.setting, ours=parts, theirs=whole, unit="MiB", ratio=whole / parts,
        )  # fmt: skip
