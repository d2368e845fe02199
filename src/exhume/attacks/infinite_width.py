"""Recover training inputs from what an infinitely wide network says (Loo et al. 2023, Theorem 1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.optimisation import Descent, Minimum, Variables, minimise
from exhume.errors import ExhumeError, Refusal
from exhume.kernels import InfiniteNTK, duals_of, jittered
from exhume.models.mlp import MLP
from exhume.models.tangent import outputs_of, response
from exhume.progress import Progress, silent
from exhume.records import AttackerView, Outcome, Reconstruction, count_outputs
from exhume.training.resumption import Checkpoint, fingerprint

Answers = Callable[
    [Float[Tensor, "candidate value"]],
    tuple[
        Float[Tensor, "candidate output"],
        Callable[[Float[Tensor, "candidate output"]], Float[Tensor, "candidate value"]],
    ],
]
"""What a trained network has learned to say about inputs, and the pull from a cotangent of that to the inputs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """``‖f − Σ_j α_j k(x_j, ·)‖² − ‖f‖²`` for a network ``f = Σ_i α_i k(x_i, ·)`` that can only be asked.

    In the kernel's own norm ``⟨f, k(x, ·)⟩ = f(x)``, so the distance of two embeddings needs no weights at all: it is
    ``Σ α_j α_l k(x_j, x_l) − 2 Σ α_j f(x_j)`` but for a constant. On a sphere the kernel embeds measures injectively,
    so that with as many candidates as training inputs only the training set itself has distance zero.
    """

    kernel: InfiniteNTK
    answers: Answers
    radius: float | None = None
    """The length of every input, where inputs are known to lie on a sphere."""
    dual_unit: float = 1.0

    def inputs(self, free: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate value"]:
        """Return candidates, on the sphere where there is one."""
        return free if self.radius is None else self.radius * free / _length(free)

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value at free inputs and duals in their unit, and its gradients."""
        free, raw = variables
        inputs, duals = self.inputs(free), self.dual_unit * raw
        table, pull = self.kernel.with_pull(inputs)
        said, pull_said = self.answers(inputs)
        own = table @ duals
        value = (duals * own).sum() - 2.0 * (duals * said).sum()
        by_inputs = pull(duals @ duals.T) - 2.0 * pull_said(duals)
        if self.radius is not None:
            length = _length(free)
            along = free / length
            by_inputs = self.radius / length * (by_inputs - along * (along * by_inputs).sum(1, keepdim=True))
        return value, (by_inputs, 2.0 * self.dual_unit * (own - said))


def _length(free: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(free, dim=1, keepdim=True)
    return length.clamp(min=1e-12)


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How to look for a whole set: descents from warm starts, between which idle candidates move to new places."""

    rounds: int = 16
    steps: int = 400
    """Of each descent."""
    learning_rate: float = 0.02
    spread: float = 0.2
    """Of the noise that new places are drawn from."""
    floor: float = 1e-6
    """A descent that ends this near to explaining all of ``‖f‖²``, where that is known, was the last.

    The kernel has a kink where inputs coincide, so a candidate off by ``ε`` leaves about ``ε`` unexplained, not ``ε²``:
    Adam comes this near and not much nearer.
    """


def match_embedding(
    problem: Embedding,
    start: Variables,
    settings: Rounds,
    *,
    generator: torch.Generator,
    squared_norm: float | None = None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> Minimum:
    """Minimise the distance of embeddings, and return the best end of all rounds.

    A descent leaves some candidates on one image together and others nowhere; neither can leave by itself. So each
    round starts from the best end so far, with those candidates moved to where the network says most that is
    unexplained.

    Args:
        problem: what to match.
        start: free inputs and duals in their unit.
        settings: how long to look.
        generator: draws new places.
        squared_norm: ``‖f‖²`` where it is known (an attacker does not know it), to tell when everything is explained.
        progress: hears where the search stands.
        checkpoint: where a search keeps its state; each round has a file of its own.
    """
    descent = Descent(steps=settings.steps, learning_rates=(settings.learning_rate,) * 2)
    best: Minimum | None = None
    variables, files = start, []
    for number in range(settings.rounds):
        file = None if checkpoint is None else _of_round(checkpoint, number)
        files.append(file)

        def heard(stage: str, done: int, total: int, note: str = "", number: int = number) -> None:
            progress(stage, number * total + done, settings.rounds * total, note)

        scale = abs(best.value) if best is not None and best.value else 1.0
        end = minimise(
            problem.objective, variables, descent, scale=scale, progress=heard, stage="search", checkpoint=file
        )
        if end.outcome is not Outcome.DIVERGED:
            end = refitted(problem, end)
        if best is None or end.value < best.value or not math.isfinite(best.value):
            best = end
        if end.outcome is Outcome.DIVERGED:
            break
        if squared_norm is not None and best.value + squared_norm < settings.floor * squared_norm:
            break
        variables = relocated(problem, best.variables, settings.spread, generator)
    for file in files:
        if file is not None:
            file.path.unlink(missing_ok=True)
    assert best is not None
    return best


def refitted(problem: Embedding, end: Minimum) -> Minimum:
    """Give the candidates of a descent the best duals they can have, in closed form; Adam leaves some noise in them."""
    free, raw = end.variables
    inputs = problem.inputs(free)
    said = problem.answers(inputs)[0].double()
    duals = duals_of(problem.kernel(inputs.double()), said, BARELY)
    variables = free, (duals / problem.dual_unit).to(raw)
    value = float(problem.objective(variables, torch.zeros(()))[0])
    return replace(end, variables=variables, value=value) if value < end.value else end


def _of_round(file: Checkpoint, number: int) -> Checkpoint:
    path = file.path.with_name(f"{file.path.stem}-{number + 1}{file.path.suffix}")
    return Checkpoint(path, f"{file.identity}-{number}", file.kind)


def relocated(problem: Embedding, variables: Variables, spread: float, generator: torch.Generator) -> Variables:
    """Move the candidates that say nothing of their own, or else a few that say least, to where most is unexplained.

    Two candidates in one place become one with both duals. What is lost by leaving out a candidate is
    ``α²/(K⁻¹)_jj``; the rest then explain what they can without it.
    """
    free, raw = (variable.clone() for variable in variables)
    inputs, duals = problem.inputs(free), problem.dual_unit * raw
    table = problem.kernel(inputs).double()
    lengths = table.diagonal().sqrt()
    alike = table / (lengths[:, None] * lengths)
    strength = duals.double().square().sum(1) * table.diagonal()
    kept: list[int] = []
    for index in strength.argsort(descending=True).tolist():
        twin = next((other for other in kept if alike[index, other] > TWINS), None)
        if twin is not None:
            raw[twin] += raw[index]
        elif strength[index] >= IDLE * strength.max():
            kept.append(index)
    if len(kept) == len(free):
        cost = duals.double().square().sum(1) / torch.linalg.inv(jittered(table, BARELY)).diagonal()
        few = 1 + int(torch.randint(min(3, len(free)), (1,), generator=generator))
        kept = cost.argsort(descending=True)[: len(free) - few].tolist()
        said = problem.answers(inputs[kept])[0].double()
        raw[kept] = (duals_of(table[kept][:, kept], said, BARELY) / problem.dual_unit).to(raw)
    moved = sorted(set(range(len(free))) - set(kept))
    if moved and kept:
        free[moved] = _unexplained(problem, free[kept], raw[kept], len(moved), spread, generator)
    raw[moved] = 0.0
    return free, raw


def _unexplained(
    problem: Embedding, free: Tensor, raw: Tensor, count: int, spread: float, generator: torch.Generator
) -> Tensor:
    """Return the places, out of many at random, where the network says most that the candidates do not explain."""
    many = PROBES * count
    noise = spread * torch.randn(2 * many, free.shape[1], generator=generator)
    # Half of them near mixtures of a few candidates: missing inputs resemble those already found.
    few = (torch.rand(many, len(free), generator=generator) < 3 / len(free)).float()
    mixed = (few * torch.randn(many, len(free), generator=generator)).to(free) @ problem.inputs(free)
    places = noise.to(free)
    places[many:] += mixed
    inputs = problem.inputs(places)
    left = problem.answers(inputs)[0] - problem.kernel(inputs, problem.inputs(free)) @ (problem.dual_unit * raw)
    told = left.square().sum(1) / problem.kernel.diagonal(inputs)
    return places[told.argsort(descending=True)[:count]]


BARELY = 1e-10
"""A jitter that lets candidates in one place be solved for, and changes nothing else in float64."""
TWINS = 0.999
"""Candidates whose kernel features have a larger cosine are one."""
IDLE = 1e-6
"""Candidates that say less than this, relative to the one that says most, say nothing."""
PROBES = 100
"""How many places are looked at for every candidate that moves."""


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
    steps: int = 400
    """Of each round."""
    learning_rate: float = 0.02
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

    def recover(
        self, view: AttackerView, *, generator: torch.Generator, progress: Progress, checkpoint: Path | None
    ) -> Reconstruction:
        """Minimise from random guesses."""
        assert view.architecture is not None
        outputs = count_outputs(view.model, view.input_shape)
        like = next(iter(view.final.values()))
        free = self.init_std * torch.randn(self.candidates, view.input_size, generator=generator)
        raw = torch.rand(self.candidates, outputs, generator=generator) - 0.5
        start = (free.to(like), raw.to(like))
        problem = embedding_of(InfiniteNTK.of(view.architecture), change_of(view), start[0], self.radius)
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(checkpoint, fingerprint({"attack": repr(self)}, *start, *view.final.values()), "search")
        rounds = Rounds(rounds=self.rounds, steps=self.steps, learning_rate=self.learning_rate, spread=self.init_std)
        end = match_embedding(problem, start, rounds, generator=generator, progress=progress, checkpoint=saved)
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
            return response(model, initial, shaped, change)[1]
        return outputs_of(model, view.final, shaped) - outputs_of(model, initial, shaped)

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
