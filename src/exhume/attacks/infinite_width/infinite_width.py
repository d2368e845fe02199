"""Recover training inputs from what an infinitely wide network says (Loo et al. 2023, Theorem 1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.infinite_width.embedding import BARELY, Answers, Embedding, most_missing
from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import RunContext
from exhume.core.suppression import suppress_neighbours
from exhume.kernels import InfiniteNTK, add_jitter
from exhume.models.mlp import MLP
from exhume.models.tangent import compute_outputs, jacobian_vector_product
from exhume.optimise import Adam, Minimum, Variables, minimise
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How to look for a whole set: descents, between which spare candidates move to where something is missing."""

    rounds: int = 16
    steps: int = 200
    """Of the first descent of each round; finer ones follow it."""
    learning_rate: float = 0.05
    starts: int = 24
    """Places from which to climb to what is missing."""
    climbing_steps: int = 150
    floor: float = 1e-8
    """When nothing more than this, relative to what is explained, is to be found missing, the search is over."""

    @property
    def stages(self) -> tuple[tuple[float, int], ...]:
        """Learning rates, relative to the first, and steps of a round's descents.

        The kernel has a kink where inputs coincide, so a candidate off by ``ε`` leaves about ``ε`` unexplained, not
        ``ε²``, and an input that says little is found only once the others are where they belong to many digits.
        """
        return (1.0, self.steps), *((rate, max(1, self.steps // 4)) for rate in (1e-2, 1e-4, 1e-6))


def match_embedding(
    problem: Embedding,
    start: Variables,
    settings: Rounds,
    *,
    generator: torch.Generator,
    progress: Progress = no_progress,
    checkpoint: Checkpoint | None = None,
) -> Minimum:
    """Minimise the distance of embeddings, and return the best end of all rounds.

    A descent leaves some candidates on one image together and others nowhere; neither can leave by itself. So each
    round starts from the best end so far, with those candidates moved to where most is missing.

    Args:
        problem: what to match.
        start: free inputs and duals in their unit.
        settings: how long to look.
        generator: draws new places.
        progress: hears where the search stands.
        checkpoint: where a search keeps its state; each descent has a file of its own.
    """
    best: Minimum | None = None
    variables, missing = start, 1.0
    for number in range(settings.rounds):
        # Where little is missing the others are in their places, and a large learning rate would only disturb them.
        coarse = settings.learning_rate * (1.0 if missing > LITTLE else GENTLY)
        end = _round(problem, variables, settings, number, coarse, best, progress, checkpoint)
        if best is None or end.value < best.value or not math.isfinite(best.value):
            best = end
        if end.outcome is Outcome.DIVERGED or number + 1 == settings.rounds:
            break
        moved = relocated(problem, best.variables, settings, generator)
        if moved is None:
            break
        variables, missing = moved
    if checkpoint is not None:
        for number in range(settings.rounds * len(settings.stages)):
            _of_descent(checkpoint, number).path.unlink(missing_ok=True)
    assert best is not None
    return best


def _round(
    problem: Embedding,
    variables: Variables,
    settings: Rounds,
    number: int,
    coarse: float,
    best: Minimum | None,
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> Minimum:
    """Descend ever more finely, and leave the best duals; Adam leaves some noise in them."""
    length = sum(steps for _, steps in settings.stages)
    scale = abs(best.value) if best is not None and best.value else 1.0
    begun = number * length
    for place, (rate, steps) in enumerate(settings.stages):
        file = None if checkpoint is None else _of_descent(checkpoint, number * len(settings.stages) + place)

        def heard(stage: str, done: int, total: int, note: str = "", begun: int = begun) -> None:
            progress(stage, begun + done, settings.rounds * length, note)

        descent = Adam(steps=steps, learning_rates=(coarse * rate,) * 2)
        end = minimise(
            problem.objective, variables, descent, scale=scale, progress=heard, stage="search", checkpoint=file
        )
        if end.outcome is Outcome.DIVERGED:
            break
        end = refitted(problem, end)
        variables, begun = end.variables, begun + steps
    return end


def refitted(problem: Embedding, end: Minimum) -> Minimum:
    """Give the candidates of a descent the best duals they can have, where those are better."""
    free = end.variables[0]
    variables = free, problem.best_duals(free)
    value = float(problem.objective(variables, torch.zeros(()))[0])
    return replace(end, variables=variables, value=value) if value < end.value else end


def _of_descent(file: Checkpoint, number: int) -> Checkpoint:
    path = file.path.with_name(f"{file.path.stem}-{number + 1}{file.path.suffix}")
    return Checkpoint(path, f"{file.identity}-{number}", file.kind)


def relocated(
    problem: Embedding, variables: Variables, settings: Rounds, generator: torch.Generator
) -> tuple[Variables, float] | None:
    """Move spare candidates, or else a few that say least, to where most is missing; None: nothing is missing.

    Two candidates in one place are one with both duals, and the other is spare; so is one that says nothing. What is
    lost by leaving out any other is ``α²/(K⁻¹)_jj``. Beside the variables stands how much was missing, relative to what
    the candidates explain.
    """
    free, raw = variables
    count = len(free)
    table = problem.kernel(problem.inputs(free).double())
    kept = _apart(table, (problem.dual_unit * raw).double())
    explained = -float(problem.objective(variables, torch.zeros(()))[0])

    def look(there: Tensor) -> tuple[Tensor, float]:
        place, found = most_missing(
            problem, there, starts=settings.starts, steps=settings.climbing_steps, generator=generator
        )
        return place, found / explained if explained > 0 else math.inf

    place, missing = look(free[kept])
    if len(kept) == count:
        if missing <= settings.floor:
            return None
        cost = raw.double().square().sum(1) / torch.linalg.inv(add_jitter(table, BARELY)).diagonal()
        few = 1 + int(torch.randint(min(3, count), (1,), generator=generator))
        kept = cost.argsort(descending=True)[: max(1, count - few)].tolist()
        place, _ = look(free[kept])
    places = torch.cat([free[kept], place])
    while len(places) < count:
        places = torch.cat([places, look(places)[0]])
    return (places[:count], problem.best_duals(places[:count])), missing


def _apart(table: Float[Tensor, "candidate candidate"], duals: Float[Tensor, "candidate output"]) -> list[int]:
    """Return the candidates that say something, each in a place of its own."""
    lengths = table.diagonal().sqrt()
    alike = table / (lengths[:, None] * lengths)
    strength = duals.square().sum(1) * table.diagonal()
    order = strength.argsort(descending=True)[: max(1, int((strength >= IDLE * strength.max()).sum()))]
    return [kept for kept, _ in suppress_neighbours(order, lambda index: alike[index] > TWINS)]


TWINS = 0.999
"""Candidates whose kernel features have a larger cosine are one."""
IDLE = 1e-10
"""Candidates that say less than this, relative to the one that says most, say nothing."""
LITTLE = 1e-3
"""When no more than this, relative to what is explained, is missing, a round descends gently from the first."""
GENTLY = 0.1


@dataclass(frozen=True, kw_only=True)
class InfiniteWidth(Attack):
    """Find inputs ``x_j`` and duals ``α_j`` with ``f − f0 = Σ α_j k(x_j, ·)`` for the kernel of infinite width.

    Minimises ``‖Σ_i α_i k(x_i, ·) − Σ_j α_j k(x_j, ·)‖²`` (Loo et al. 2023, Theorem 1). The network is only asked what
    it has learned to say, ``f(x) − f0(x)``, never opened; so the attack is exact for an infinitely wide network, where
    that is all there is to know, and as good as the network is wide for any other.
    """

    candidates: int
    """How many inputs to look for; nothing an attacker asks tells the size of the training set."""
    radius: float | None = None
    """The length of every input as the network takes it, where inputs are known to lie on a sphere."""
    rounds: int = 8
    steps: int = 200
    """Of the first descent of each round; climbing to what is missing takes three quarters as many."""
    learning_rate: float = 0.05
    init_std: float = 0.2
    """The spread of the first guesses around zero, in network units."""

    def __post_init__(self) -> None:
        if min(self.candidates, self.rounds, self.steps) < 1:
            raise ExhumeError("InfiniteWidth needs at least one candidate, one round and one step.")

    def check(self, view: AttackerView) -> None:
        """Refuse networks without a start, and those whose kernel of infinite width is not known."""
        if view.initial is None:
            raise Refusal("InfiniteWidth asks what training changed, and the view has no initial weights.")
        if all(torch.equal(view.initial[name], view.final[name]) for name in view.final):
            raise Refusal("The initial and the final weights are the same: nothing was trained.")
        if view.architecture is None or not isinstance(view.architecture, MLP):
            raise Refusal("InfiniteWidth needs to know the kernel of infinite width, so the architecture of an MLP.")
        try:
            InfiniteNTK.of(view.architecture)
        except ExhumeError as error:
            raise Refusal(str(error)) from error

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Minimise from random guesses."""
        assert view.architecture is not None
        outputs = count_outputs(view.model, view.input_shape)
        like = next(iter(view.final.values()))
        free = self.init_std * torch.randn(self.candidates, view.input_size, generator=context.generator)
        raw = torch.rand(self.candidates, outputs, generator=context.generator) - 0.5
        start = (free.to(like), raw.to(like))
        problem = embedding_of(InfiniteNTK.of(view.architecture), change_of(view), start[0], self.radius)
        saved = context.saved("search", {"attack": repr(self)}, *start, *view.final.values())
        rounds = Rounds(
            rounds=self.rounds,
            steps=self.steps,
            learning_rate=self.learning_rate,
            climbing_steps=max(1, 3 * self.steps // 4),
        )
        end = match_embedding(
            problem, start, rounds, generator=context.generator, progress=context.report, checkpoint=saved
        )
        return _result(view, problem, end)


def embedding_of(
    kernel: InfiniteNTK, answers: Answers, guesses: Float[Tensor, "candidate value"], radius: float | None = None
) -> Embedding:
    """Pose the problem, with duals counted in about the size they should have: that of answers over the kernel."""
    problem = Embedding(kernel=kernel, answers=answers, radius=radius)
    inputs = problem.inputs(guesses)
    with torch.no_grad():
        said = answers(inputs)[0].square().mean().sqrt()
        unit = float(said / kernel.diagonal(inputs).mean())
    return Embedding(kernel=kernel, answers=answers, radius=radius, dual_unit=unit or 1.0)


def change_of(view: AttackerView) -> Answers:
    """Return what training taught the network of a view: ``f(x) − f0(x)``."""
    assert view.initial is not None
    initial, model = view.initial, view.module(view.final)
    change = {name: view.final[name] - initial[name] for name in view.final}

    def taught(inputs: Tensor) -> Tensor:
        shaped = inputs.reshape(len(inputs), *view.input_shape)
        if view.linearised:
            return jacobian_vector_product(model, initial, shaped, change)[1]
        return compute_outputs(model, view.final, shaped) - compute_outputs(model, initial, shaped)

    def answers(
        inputs: Float[Tensor, "candidate value"],
    ) -> tuple[
        Float[Tensor, "candidate output"],
        Callable[[Float[Tensor, "candidate output"]], Float[Tensor, "candidate value"]],
    ]:
        with torch.enable_grad():
            asked = inputs.detach().requires_grad_()
            said = taught(asked)

        def pull(cotangent: Tensor) -> Tensor:
            return torch.autograd.grad(said, asked, cotangent)[0]

        return said.detach(), pull

    return answers


def _result(view: AttackerView, problem: Embedding, end: Minimum) -> Reconstruction:
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
        message="The objective left all bounds; lower the learning rate."
        if diverged
        else f"The candidates explain a squared norm of {-end.value:.3g} of what the network learned.",
        history=end.history.float(),
        diagnostics={"steps": end.steps, "explained": -end.value if math.isfinite(end.value) else None},
    )
