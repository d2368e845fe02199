"""The loop that all optimising attacks share, for one run or many.

Runs that share the loop have variables with a first dimension of runs and an objective with one value per run. Each
goes and ends as it would alone.
"""

import time
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.checkpoint import Checkpoint
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import OutOfTime
from exhume.optimise.adam import Adam
from exhume.optimise.outcomes import Minimum, Variables
from exhume.optimise.runs import Runs, RunsObjective
from exhume.optimise.splitting import Splits
from exhume.optimise.stepping import stepper

SECONDS_TO_REPORT = 0.5
"""Seconds after which progress is reported between two inspections, so that slow steps keep to a deadline."""

Objective = Callable[[Variables, Float[Tensor, ""]], tuple[Float[Tensor, ""], Variables]]
"""Map the variables and the elapsed fraction of the steps (0 to 1, on the device) to the value and the gradients."""


def minimise(
    objective: Objective,
    start: Variables,
    adam: Adam,
    *,
    scale: float = 1.0,
    progress: Progress = no_progress,
    stage: str = "minimise",
    checkpoint: Checkpoint | None = None,
    coarse: Objective | None = None,
    splits: Splits | None = None,
) -> Minimum:
    """Minimise ``objective`` from ``start``.

    On a GPU a step is recorded once as a CUDA graph and replayed. With a checkpoint the run can be interrupted at any
    moment; on a CPU the resumed run ends with the same bits.

    Args:
        objective: returns the value and its gradients; called without autograd.
        start: initial variables; not modified.
        adam: the settings.
        scale: the value of the objective when nothing is achieved; the end and the progress note are relative to it.
        progress: a callback for progress reports.
        stage: the name of the work in progress reports.
        checkpoint: the file that the state is saved to and continued from.
        coarse: a cheaper objective for the coarse share of the steps.
        splits: when and how candidates are split, for variables with a first dimension of runs; None: never.

    Returns:
        The end of the run, or the last finite state of a run that diverged.
    """
    (minimum,) = minimise_together(
        _as_runs(objective),
        tuple(variable[None] for variable in start),
        adam,
        scales=(scale,),
        progress=progress,
        stage=stage,
        checkpoint=checkpoint,
        coarse=None if coarse is None else _as_runs(coarse),
        splits=splits,
    )
    return minimum


def _as_runs(objective: Objective) -> RunsObjective:
    """Return the objective of one run as that of many, with one run."""

    def objective_of_runs(variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, " run"], Variables]:
        value, gradients = objective(tuple(variable[0] for variable in variables), elapsed)
        return value[None], tuple(gradient[None] for gradient in gradients)

    return objective_of_runs


def minimise_together(
    objective: RunsObjective,
    start: Variables,
    adam: Adam,
    *,
    scales: Sequence[float],
    progress: Progress = no_progress,
    stage: str = "minimise",
    checkpoint: Checkpoint | None = None,
    coarse: RunsObjective | None = None,
    splits: Splits | None = None,
) -> list[Minimum]:
    """Minimise from many starts in one program: :func:`minimise` with a first dimension of runs everywhere.

    A learning rate may be a tensor with one value per run. A run that diverges stays at its last finite state, a run
    that comes to rest stays where it is, and neither disturbs the others; the loop ends with the last run.

    Returns:
        One minimum per run, in the order of ``scales``.
    """
    split_steps: tuple[int, ...] = ()
    if splits is not None:
        split_steps, start, objective = splits.at_steps, splits.empty_places(start), splits.keep_empty(objective)
        coarse = None if coarse is None else splits.keep_empty(coarse)
    runs = Runs(objective, coarse or objective, start, adam, scales)
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        runs.unpack(*saved)
    with torch.no_grad(), stepper(runs) as advance:
        while True:
            if _steps_to_next_inspection(runs.taken - 1, adam, split_steps) == 1:
                runs.inspect()
                if checkpoint is not None and (runs.is_over or checkpoint.is_due()):
                    checkpoint.save(*runs.pack())
            try:
                progress(stage, adam.steps if runs.is_over else runs.taken, adam.steps, runs.note())
            except (KeyboardInterrupt, OutOfTime) as stop:
                # Raised by the report, where the state is whole: save it, so that no step is lost.
                runs.inspect()
                wraps_up = isinstance(stop, OutOfTime) and stop.wraps_up
                if checkpoint is not None and not (wraps_up and runs.taken == 0):
                    checkpoint.save(*runs.pack())
                if not wraps_up:
                    raise
                if runs.taken == 0:
                    advance(1)
                return runs.cut_short()
            if runs.is_over:
                return runs.minima()
            _advance_to_next_report(runs, advance, adam, split_steps)
            if splits is not None and runs.taken in split_steps:
                runs.split(splits)  # before anything is saved, so that a resumed run does not split again


def _advance_to_next_report(
    runs: Runs, advance: Callable[[int], None], adam: Adam, split_steps: tuple[int, ...]
) -> None:
    """Take the steps up to the next inspection; on a CPU fewer if they are slow."""
    steps = _steps_to_next_inspection(runs.taken, adam, split_steps)
    if runs.step.is_cuda:  # whose steps run on their own, so that the clock says nothing about them
        advance(steps)
        return
    started = time.monotonic()
    for _ in range(steps):
        advance(1)
        if time.monotonic() - started > SECONDS_TO_REPORT:
            return


def _steps_to_next_inspection(taken: int, adam: Adam, split_steps: tuple[int, ...]) -> int:
    """Return the number of steps to the next inspection; the precision changes and candidates are split only there.

    Inspections depend on the number of steps alone, so that a resumed run makes the same ones.
    """
    next_multiple = (taken // adam.inspection_steps + 1) * adam.inspection_steps
    return min(stop for stop in (next_multiple, adam.steps, adam.coarse_steps, *split_steps) if stop > taken) - taken
