"""Minimise: the one loop that optimising attacks share. It knows variables, an objective and nothing of attacks.

Many runs can share the loop: their variables have a first dimension of runs, their objective a value each, and every
run goes as it would go alone, ends when it would end, and does not disturb the others.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import STOPS
from exhume.records import Outcome

Variables = tuple[Tensor, ...]
Objective = Callable[[Variables, Float[Tensor, ""]], tuple[Float[Tensor, ""], Variables]]
"""From the variables and the elapsed fraction of the run (0 to 1, on the device) to the value and its gradients."""
Objectives = Callable[[Variables, Float[Tensor, ""]], tuple[Float[Tensor, " run"], Variables]]
"""The same for many runs: variables have a first dimension of runs, and each run a value."""
Decay = Literal["cosine", "none"]

LOOK_STEPS = 25
"""How often the loop reads the value back, which makes a GPU wait; between two looks it runs on its own."""
WARM_UP_STEPS = 3
"""Steps run one by one before a CUDA graph is recorded, so that libraries have chosen their kernels."""
RECORDED = 1000
"""The most values of the objective that a result keeps."""


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Settings of a minimisation by Adam (Kingma and Ba 2015)."""

    steps: int
    learning_rates: tuple[float, ...]
    """One a variable."""
    decay: Decay = "cosine"
    """Whether the learning rates fall to zero along half a cosine, or stay."""
    mean_decay: float = 0.9
    square_decay: float = 0.999
    tolerance: float = 0.05
    """A value no larger than this, relative to the value's scale, counts as converged."""
    patience: int = 0
    """Stop when so many steps did not lower the least value by a thousandth; 0: never."""
    coarse: float | None = None
    """The share of steps, the first ones, that may be coarse: a GPU rounds float32 products to TF32, and a coarse
    objective, where there is one, stands in for the exact one. None: neither, and TF32 stays as it is set."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ExhumeError(f"A minimisation needs at least one step, not {self.steps}.")
        if not all(0 < rate < math.inf for rate in self.learning_rates):
            raise ExhumeError(f"A minimisation needs positive learning rates, not {self.learning_rates}.")
        if self.coarse is not None and not 0 <= self.coarse <= 1:
            raise ExhumeError(f"The coarse share of a minimisation lies between 0 and 1, not at {self.coarse}.")

    @property
    def coarse_steps(self) -> int:
        """How many steps are coarse."""
        return round((self.coarse or 0.0) * self.steps)


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """Where a minimisation ended."""

    variables: Variables
    history: Float[Tensor, " recorded"]
    """The objective over the run, thinned to a thousand values at most; the last one always included."""
    steps: int
    value: float
    outcome: Outcome


def minimise(
    objective: Objective,
    start: Variables,
    descent: Descent,
    *,
    scale: float = 1.0,
    progress: Progress = no_progress,
    stage: str = "minimise",
    checkpoint: Checkpoint | None = None,
    coarse: Objective | None = None,
) -> Minimum:
    """Minimise ``objective`` from ``start``.

    On a GPU a step is recorded once as a CUDA graph and replayed, so that it costs what its arithmetic costs.
    With a checkpoint the run can be interrupted at any moment; on a CPU it ends with the same bits all the same.

    Args:
        objective: returns value and gradients; called without autograd.
        start: where to begin; not modified.
        descent: how to descend.
        scale: a value that would mean nothing was achieved, for judging the end and for the progress note.
        progress: hears where the minimisation stands.
        stage: what progress calls it.
        checkpoint: where to save the state and continue from.
        coarse: a cheaper objective for the coarse share of the steps.

    Returns:
        The end of the run, or the last finite state of a run that diverged.
    """
    (end,) = minimise_together(
        _alone(objective),
        tuple(variable[None] for variable in start),
        descent,
        scales=(scale,),
        progress=progress,
        stage=stage,
        checkpoint=checkpoint,
        coarse=None if coarse is None else _alone(coarse),
    )
    return end


def _alone(objective: Objective) -> Objectives:
    """Return the objective of one run as that of many, of which there is one."""

    def alone(variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, " run"], Variables]:
        value, gradients = objective(tuple(variable[0] for variable in variables), elapsed)
        return value[None], tuple(gradient[None] for gradient in gradients)

    return alone


def minimise_together(
    objective: Objectives,
    start: Variables,
    descent: Descent,
    *,
    scales: Sequence[float],
    progress: Progress = no_progress,
    stage: str = "minimise",
    checkpoint: Checkpoint | None = None,
    coarse: Objectives | None = None,
) -> list[Minimum]:
    """Minimise from many starts in one program; as :func:`minimise`, with a first dimension of runs everywhere.

    A run that diverges or comes to rest stays where it is, and the loop ends with the last one.

    Returns:
        One minimum a run, in the order of ``scales``.
    """
    walk = _Walk(objective, coarse or objective, start, descent, scales)
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        walk.unpack(*saved)
    with torch.no_grad(), walk.stepper() as advance:
        while True:
            walk.look()
            if checkpoint is not None and (walk.is_over or checkpoint.due()):
                checkpoint.save(*walk.pack())
            try:
                done = descent.steps if walk.is_over else walk.taken
                progress(stage, done, descent.steps, walk.note())
            except STOPS:  # raised by the report: here the state is whole, so nothing need be lost
                if checkpoint is not None:
                    checkpoint.save(*walk.pack())
                raise
            if walk.is_over:
                return [walk.end_of(run) for run in range(len(scales))]
            advance(walk.until_next_look())


def judge(history: Float[Tensor, " step"], scale: float, tolerance: float) -> Outcome:
    """Tell how a minimisation ended, from its values alone.

    *Diverged* when a value is not finite. *Converged* when the last value is at most ``tolerance`` of ``scale``. Else
    the last tenth of the run is compared with the tenth two before it: *steps exhausted* when the mean fell by more
    than a tenth between the two, *stalled* when it did not, so that more steps would not help.

    >>> judge(torch.linspace(1.0, 0.5, 100), 1.0, 0.05).value
    'steps exhausted'
    """
    if not bool(torch.isfinite(history).all()):
        return Outcome.DIVERGED
    if float(history[-1]) <= tolerance * scale:
        return Outcome.CONVERGED
    tenth = max(1, len(history) // 10)
    late, earlier = history[-tenth:].mean(), history[-3 * tenth :][:tenth].mean()
    return Outcome.STEPS_EXHAUSTED if float(late) < 0.9 * float(earlier) else Outcome.STALLED


def thinned(history: Float[Tensor, " step"], most: int = RECORDED) -> Float[Tensor, " recorded"]:
    """Keep at most ``most`` values of a history, evenly spaced, the last one included.

    >>> thinned(torch.arange(10.0), 4)
    tensor([0., 3., 6., 9.])
    """
    if len(history) <= most:
        return history.clone()
    return history[torch.linspace(0, len(history) - 1, most, device=history.device).round().long()]


@dataclass(frozen=True)
class _End:
    outcome: Outcome
    steps: int
    value: float


class _Walk:
    """Minimisations under way. Everything that changes is a tensor changed in place, so that a graph can replay it."""

    def __init__(
        self, objective: Objectives, coarse: Objectives, start: Variables, descent: Descent, scales: Sequence[float]
    ) -> None:
        self.objective, self.coarse, self.descent, self.scales = objective, coarse, descent, scales
        self.variables = tuple(variable.detach().clone() for variable in start)
        self.safe = tuple(variable.clone() for variable in self.variables)
        self.means = tuple(torch.zeros_like(variable) for variable in start)
        self.squares = tuple(torch.zeros_like(variable) for variable in start)
        like = start[0]
        self.step = torch.zeros(1, dtype=torch.int64, device=like.device)
        self.history = torch.zeros(descent.steps, len(scales), dtype=like.dtype, device=like.device)
        self.going = torch.ones(len(scales), dtype=torch.bool, device=like.device)
        self.ends: dict[int, _End] = {}
        self.taken = 0

    @property
    def is_over(self) -> bool:
        return len(self.ends) == len(self.scales)

    def take_step(self) -> None:
        """Advance by one step of Adam, without asking the device anything."""
        elapsed = self.step[0].double() / self.descent.steps
        objective = self.coarse if self._is_coarse() else self.objective
        values, gradients = objective(self.variables, elapsed)
        self.history.index_copy_(0, self.step, values[None].to(self.history))
        self.step += 1
        count = self.step[0].double()
        first = 1 - self.descent.mean_decay**count
        second = 1 - self.descent.square_decay**count
        rate = (
            torch.cos(math.pi * elapsed).add(1).div(2) if self.descent.decay == "cosine" else torch.ones_like(elapsed)
        )
        for variable, gradient, mean, square, learning_rate in zip(
            self.variables, gradients, self.means, self.squares, self.descent.learning_rates, strict=True
        ):
            mean.lerp_(gradient, 1 - self.descent.mean_decay)
            square.mul_(self.descent.square_decay).addcmul_(gradient, gradient, value=1 - self.descent.square_decay)
            spread = (square / second.to(square)).sqrt_().add_(1e-8)
            change = mean.div(spread).mul_((learning_rate * rate / first).to(variable))
            if len(self.scales) > 1:  # a run alone ends the loop when it ends
                going = self.going.reshape(-1, *[1] * (variable.ndim - 1))
                change = torch.where(going, change, torch.zeros((), dtype=change.dtype, device=change.device))
            variable.sub_(change)

    @contextmanager
    def stepper(self) -> Iterator[Callable[[int], None]]:
        """Give a function that takes so many steps as fast as the device allows."""
        is_cuda = self.step.is_cuda
        graph: torch.cuda.CUDAGraph | None = None
        recordable, phase = is_cuda, self._is_coarse()

        def advance(steps: int) -> None:
            nonlocal graph, recordable, phase
            now = self._is_coarse()
            if now is not phase:  # a graph keeps the precision it was recorded in
                phase, graph, recordable = now, None, is_cuda
            with nullcontext() if phase is None else matrix_precision(phase):
                for number in range(steps):
                    if graph is not None:
                        graph.replay()
                    elif recordable and number == WARM_UP_STEPS:
                        graph = self._recorded()
                        recordable = graph is not None
                        graph.replay() if graph is not None else self.take_step()
                    else:
                        self.take_step()
            self.taken += steps

        if not is_cuda:
            yield advance
            return
        # Graphs are recorded off the default stream; the warm-up runs there too, so that it warms what is recorded.
        stream = torch.cuda.Stream(self.step.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield advance
        torch.cuda.current_stream().wait_stream(stream)

    def _recorded(self) -> "torch.cuda.CUDAGraph | None":
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self.take_step()
        except RuntimeError:  # an objective that waits for the device cannot be recorded; it runs step by step
            torch.cuda.synchronize()
            return None
        return graph

    def _is_coarse(self) -> bool | None:
        return None if self.descent.coarse is None else self.taken < self.descent.coarse_steps

    def until_next_look(self) -> int:
        """Return how many steps to take now; the precision changes at a look only."""
        stops = [self.taken + LOOK_STEPS, self.descent.steps, self.descent.coarse_steps]
        return min(stop for stop in stops if stop > self.taken) - self.taken

    def look(self) -> None:
        """Read the values back and decide which runs are over."""
        if self.taken == 0:
            return
        seen = self.history[: self.taken]
        whole = torch.stack([torch.isfinite(variable).flatten(1).all(1) for variable in self.variables]).all(0)
        finite = (whole & torch.isfinite(seen[-1])).tolist()
        idle = self._idle(seen)
        for run, value in enumerate(seen[-1].tolist()):
            if run in self.ends:
                continue
            if not finite[run]:
                self.ends[run] = _End(Outcome.DIVERGED, self.taken, value)
            elif self.taken == self.descent.steps or idle[run]:
                outcome = judge(seen[:, run], self.scales[run], self.descent.tolerance)
                self.ends[run] = _End(outcome, self.taken, value)
        for run, end in self.ends.items():
            self.going[run] = False
            if end.outcome is Outcome.DIVERGED:
                for kept, variable in zip(self.safe, self.variables, strict=True):
                    variable[run] = kept[run]
        for kept, variable in zip(self.safe, self.variables, strict=True):
            kept.copy_(variable)

    def _idle(self, seen: Tensor) -> list[bool]:
        patience = self.descent.patience
        if not 0 < patience < len(seen):
            return [False] * len(self.scales)
        resting = seen[-patience:].amin(0) >= 0.999 * seen[:-patience].amin(0)
        return [bool(rests) for rests in resting.tolist()]

    def note(self) -> str:
        """Say where the best run stands."""
        if self.taken == 0:
            return "residual nan"
        ratios = [
            value / scale for value, scale in zip(self.history[self.taken - 1].tolist(), self.scales, strict=True)
        ]
        return f"residual {min(ratios):.1e}"

    def end_of(self, run: int) -> Minimum:
        """Return where a run ended."""
        end = self.ends[run]
        return Minimum(
            variables=tuple(variable[run] for variable in self.safe),
            history=thinned(self.history[: end.steps, run]).cpu(),
            steps=end.steps,
            value=end.value,
            outcome=end.outcome,
        )

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return everything that decides how the runs go on."""
        named = {
            f"{kind}/{number}": tensor
            for kind in ("variables", "means", "squares")
            for number, tensor in enumerate(getattr(self, kind))
        }
        ends = {str(run): [end.outcome.value, end.steps, repr(end.value)] for run, end in self.ends.items()}
        return {"taken": self.taken, "ends": ends}, named | {"history": self.history[: self.taken]}

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go back to where :meth:`pack` was called."""
        self.taken = values["taken"]
        self.step.fill_(self.taken)
        self.history[: self.taken] = tensors["history"].to(self.history)
        for kind in ("variables", "means", "squares"):
            for number, tensor in enumerate(getattr(self, kind)):
                tensor.copy_(tensors[f"{kind}/{number}"])
        for kept, variable in zip(self.safe, self.variables, strict=True):
            kept.copy_(variable)
        for run, (outcome, steps, value) in values["ends"].items():
            self.ends[int(run)] = _End(Outcome(outcome), steps, float(value))
            self.going[int(run)] = False


@contextmanager
def matrix_precision(tf32: bool) -> Iterator[None]:
    """Let float32 matrix products on a GPU round their factors to TF32 for a while, or forbid it."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
