"""Minimise: the one loop that optimising attacks share. It knows variables, an objective and nothing of attacks."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.errors import ExhumeError
from exhume.progress import Progress, silent
from exhume.records import Outcome
from exhume.training.resumption import Checkpoint

Variables = tuple[Tensor, ...]
Objective = Callable[[Variables, Float[Tensor, ""]], tuple[Float[Tensor, ""], Variables]]
"""From the variables and the elapsed fraction of the run (0 to 1, on the device) to the value and its gradients."""
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

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ExhumeError(f"A minimisation needs at least one step, not {self.steps}.")
        if not all(0 < rate < math.inf for rate in self.learning_rates):
            raise ExhumeError(f"A minimisation needs positive learning rates, not {self.learning_rates}.")


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
    progress: Progress = silent,
    stage: str = "minimise",
    checkpoint: Checkpoint | None = None,
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

    Returns:
        The end of the run, or the last finite state of a run that diverged.
    """
    walk = _Walk(objective, start, descent)
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        walk.unpack(*saved)
    safe = tuple(variable.clone() for variable in walk.variables)
    with torch.no_grad(), walk.stepper() as advance:
        while True:
            look = walk.look(scale)
            ended = look.outcome is not None
            if look.outcome is not Outcome.DIVERGED:
                for kept, variable in zip(safe, walk.variables, strict=True):
                    kept.copy_(variable)
            if checkpoint is not None and (ended or checkpoint.due()):
                checkpoint.save(*walk.pack())
            try:
                done = descent.steps if ended else walk.taken
                progress(stage, done, descent.steps, f"residual {look.value / scale:.1e}")
            except KeyboardInterrupt:  # from a listener: here the state is whole, so nothing need be lost
                if checkpoint is not None:
                    checkpoint.save(*walk.pack())
                raise
            if look.outcome is not None:
                return Minimum(
                    variables=safe,
                    history=thinned(walk.history[: walk.taken]).cpu(),
                    steps=walk.taken,
                    value=look.value,
                    outcome=look.outcome,
                )
            advance(min(LOOK_STEPS, descent.steps - walk.taken))


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
class _Look:
    value: float
    outcome: Outcome | None
    """None while the run goes on."""


class _Walk:
    """A minimisation under way. Everything that changes is a tensor changed in place, so that a graph can replay it."""

    def __init__(self, objective: Objective, start: Variables, descent: Descent) -> None:
        self.objective = objective
        self.descent = descent
        self.variables = tuple(variable.detach().clone() for variable in start)
        self.means = tuple(torch.zeros_like(variable) for variable in start)
        self.squares = tuple(torch.zeros_like(variable) for variable in start)
        self.step = torch.zeros(1, dtype=torch.int64, device=start[0].device)
        self.history = torch.zeros(descent.steps, dtype=start[0].dtype, device=start[0].device)
        self.taken = 0

    def take_step(self) -> None:
        """Advance by one step of Adam, without asking the device anything."""
        elapsed = self.step[0].double() / self.descent.steps
        value, gradients = self.objective(self.variables, elapsed)
        self.history.index_copy_(0, self.step, value[None].to(self.history))
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
            variable.sub_(mean.div(spread).mul_((learning_rate * rate / first).to(variable)))

    @contextmanager
    def stepper(self) -> Iterator[Callable[[int], None]]:
        """Give a function that takes so many steps as fast as the device allows."""
        graph: torch.cuda.CUDAGraph | None = None
        is_cuda = self.step.is_cuda
        recordable = is_cuda

        def advance(steps: int) -> None:
            nonlocal graph, recordable
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

    def look(self, scale: float) -> _Look:
        """Read the value back and decide whether the run is over."""
        if self.taken == 0:
            return _Look(math.nan, None)
        seen = self.history[: self.taken]
        value = float(seen[-1])
        whole = all(bool(torch.isfinite(variable).all()) for variable in self.variables)
        if not math.isfinite(value) or not whole:
            return _Look(value, Outcome.DIVERGED)
        if self.taken < self.descent.steps and not self._idle(seen):
            return _Look(value, None)
        return _Look(value, judge(seen, scale, self.descent.tolerance))

    def _idle(self, seen: Tensor) -> bool:
        patience = self.descent.patience
        return 0 < patience < len(seen) and bool(seen[-patience:].min() >= 0.999 * seen[:-patience].min())

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return everything that decides how the run goes on."""
        named = {
            f"{kind}/{number}": tensor
            for kind in ("variables", "means", "squares")
            for number, tensor in enumerate(getattr(self, kind))
        }
        return {"taken": self.taken}, named | {"history": self.history[: self.taken]}

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go back to where :meth:`pack` was called."""
        self.taken = values["taken"]
        self.step.fill_(self.taken)
        self.history[: self.taken] = tensors["history"].to(self.history)
        for kind in ("variables", "means", "squares"):
            for number, tensor in enumerate(getattr(self, kind)):
                tensor.copy_(tensors[f"{kind}/{number}"])


@contextmanager
def matrix_precision(tf32: bool) -> Iterator[None]:
    """Let float32 matrix products on a GPU round their factors to TF32 for a while, or forbid it."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
