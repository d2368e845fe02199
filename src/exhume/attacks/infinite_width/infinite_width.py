"""Recover training inputs from the outputs of an infinitely wide network (Loo et al. 2023, Theorem 1)."""

import math

import torch
from pydantic import PositiveFloat, PositiveInt

from exhume.attacks.attack import Attack
from exhume.attacks.infinite_width.answers import change_of_outputs
from exhume.attacks.infinite_width.embedding import Embedding
from exhume.attacks.infinite_width.rounds import Rounds, match_embedding
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.kernels import InfiniteNTK
from exhume.models.mlp import MLP
from exhume.models.tangent import widen
from exhume.optimise import Minimum
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs


@settings
class InfiniteWidth(Attack):
    """Find inputs ``x_j`` and duals ``α_j`` with ``f − f0 = Σ α_j k(x_j, ·)`` for the kernel of infinite width.

    Minimises ``‖Σ_i α_i k(x_i, ·) − Σ_j α_j k(x_j, ·)‖²`` (Loo et al. 2023, Theorem 1). The attack evaluates only the
    change of the outputs, ``f(x) − f0(x)``, and reads no weights. So it is exact for an infinitely wide network, and
    approximate for any other, the better the wider the network is.
    """

    candidates: PositiveInt
    """Number of training inputs, which the outputs do not show."""
    radius: PositiveFloat | None = None
    """Norm of every network input, where inputs are known to lie on a sphere."""
    rounds: PositiveInt = 8
    steps: PositiveInt = 200
    """Steps of the first descent per round; the search for missing inputs takes three quarters as many."""
    learning_rate: PositiveFloat = 0.05
    init_std: PositiveFloat = 0.2
    """Standard deviation of initial candidates around zero, in network units."""

    def check(self, view: AttackerView) -> None:
        """Refuse views without initial weights, and networks whose kernel of infinite width is not known."""
        if view.initial is None:
            raise Refusal("InfiniteWidth needs the outputs before training, and the view has no initial weights.")
        if all(torch.equal(view.initial[name], view.final[name]) for name in view.final):
            raise Refusal("The initial and the final weights are the same: nothing was trained.")
        if view.architecture is None or not isinstance(view.architecture, MLP):
            raise Refusal("InfiniteWidth needs the kernel of infinite width, so the architecture of an MLP.")
        try:
            InfiniteNTK.of(view.architecture)
        except ExhumeError as error:
            raise Refusal(str(error)) from error

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Match the embedding from random candidates."""
        assert view.architecture is not None
        outputs = count_outputs(view.model, view.input_shape)
        like = next(iter(widen(view.final).values()))
        free = self.init_std * torch.randn(self.candidates, view.input_size, generator=context.generator)
        raw = torch.rand(self.candidates, outputs, generator=context.generator) - 0.5
        start = (free.to(like), raw.to(like))
        problem = Embedding.of(InfiniteNTK.of(view.architecture), change_of_outputs(view), start[0], self.radius)
        rounds = Rounds(
            rounds=self.rounds,
            steps=self.steps,
            learning_rate=self.learning_rate,
            climbing_steps=max(1, 3 * self.steps // 4),
        )
        end = match_embedding(
            problem,
            start,
            rounds,
            generator=context.generator,
            progress=context.report,
            checkpoint=context.saved("search", {"attack": repr(self)}, *start, *view.final.values()),
        )
        return _make_result(view, problem, end)


def _make_result(view: AttackerView, problem: Embedding, end: Minimum) -> Reconstruction:
    free, raw = end.variables
    inputs, duals = problem.inputs(free), problem.dual_unit * raw
    explained = duals.square().sum(1) * problem.kernel.diagonal(inputs)
    diverged = end.outcome is Outcome.DIVERGED
    return Reconstruction(
        inputs=view.to_pixels(inputs.float()),
        certified=torch.zeros(len(free), dtype=torch.bool),
        confidence=(explained / explained.max().clamp(min=1e-30)).float(),
        duals=duals.float(),
        outcome=end.outcome,
        message="The objective diverged; lower the learning rate."
        if diverged
        else f"The candidates explain a squared norm of {-end.value:.3g} of the learned function.",
        history=end.history.float(),
        diagnostics={"steps": end.steps, "explained": -end.value if math.isfinite(end.value) else None},
    )
