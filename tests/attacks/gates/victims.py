"""Victims whose training data is known, problems with their answers, and a score against the truth."""

import copy
import functools
import os
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

import exhume
from exhume.attacks.gates.problem import RowProblem, pose_problem
from exhume.clues.clues import clues_of
from exhume.clues.first_layer import backward_signals
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset

EXACT = 0.02
"""The largest error of any pixel that still counts as exact."""


@functools.cache
def draw(source="digits", size=16, seed=0, **settings) -> Dataset:
    if source == "digits":
        settings = {"classes": "odd-even"} | settings
    offline = {"data_dir": os.environ["EXHUME_DATA"]} if "EXHUME_DATA" in os.environ else {}
    return exhume.load(source, size=size, test=0, seed=seed, **settings, **offline)


_VIEWS: dict[tuple[int, str, str], tuple[Dataset, AttackerView]] = {}


def view_of(data: Dataset, model=MLP(width=256), **settings) -> AttackerView:  # noqa: B008 - frozen
    """Train a network and return what an attacker holds; a training is done once and shared between tests."""
    key = (id(data), repr(model), repr(sorted(settings.items())))
    if key not in _VIEWS:
        view = exhume.train(data, model=model, device="cpu", **settings).view()
        _VIEWS[key] = (data, view)  # the data is kept so that its id stays its own
    return _VIEWS[key][1]


def with_final(view: AttackerView, change) -> AttackerView:
    return replace(view, final={name: change(weight) for name, weight in view.final.items()})


def build_seeded(make, seed=0):
    """Build a module with weights that depend on ``seed`` alone, leaving the global generator as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def train_by_plain_loop(model, inputs, targets, *, loss, lr, steps, batch=None, seed=0, **settings):
    """Train a module by a plain loop around torch.optim.SGD; return its initial and final weights."""
    generator = torch.Generator().manual_seed(seed)
    initial = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, **settings)
    for _ in range(steps):
        chosen = torch.randperm(len(inputs), generator=generator)[: batch or len(inputs)]
        optimiser.zero_grad()
        loss(model(inputs[chosen]), targets[chosen]).backward()
        optimiser.step()
    return initial, copy.deepcopy(model.state_dict())


@dataclass(frozen=True)
class Score:
    """How a reconstruction compares with the training inputs, which the attacker never saw."""

    recovered: int
    """Number of training inputs that some input equals to within :data:`EXACT`, certified or not."""
    certified: int
    exact: int
    """Number of distinct training inputs that are certified and exact."""
    false: int
    """Number of certified inputs that equal no training input to within :data:`EXACT`."""


def score(found, truth) -> Score:
    """Compare a reconstruction with the training inputs."""
    if len(found) == 0:
        return Score(0, 0, 0, 0)
    errors = (found.inputs.flatten(1)[:, None] - truth.flatten(1)[None]).abs().amax(dim=2)
    nearest = errors.min(dim=1)
    exact = found.certified & (nearest.values < EXACT)
    return Score(
        recovered=int((errors < EXACT).any(dim=0).sum()),
        certified=int(found.certified.sum()),
        exact=len(set(nearest.indices[exact].tolist())),
        false=int((found.certified & ~exact).sum()),
    )


def with_constant(view: AttackerView, inputs):
    """Return inputs in pixel units as the layer sees them: flat, with a last value of 1."""
    flat = view.to_model(inputs).flatten(1).double()
    return torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1)


class Solved(NamedTuple):
    """A problem with its answer: the rows and the inputs that trained the network."""

    problem: RowProblem
    rows: torch.Tensor
    inputs: torch.Tensor


@functools.cache
def solved_problem(width: int = 256) -> Solved:
    """Return the problem of a network trained on 16 digits, with its answer."""
    data = draw(size=16)
    view = view_of(data, MLP(width=width))
    return Solved(problem_of(view), true_rows(view, data.train.inputs), with_constant(view, data.train.inputs))


def random_rows(problem: RowProblem, count: int, seed: int = 0) -> torch.Tensor:
    """Return random unit vectors of a row space."""
    rows = torch.randn(count, problem.rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True)


def mix_rows(rows, place: int = 3, other: int = 5, part: float = 0.3):
    """Return rows of which one has a part of another added."""
    wrong = rows.clone()
    wrong[place] = rows[place] + part * rows[other]
    wrong[place] /= wrong[place].norm()
    return wrong


def problem_of(view: AttackerView) -> RowProblem:
    """Return the row problem of a view."""
    subspace = clues_of(view).require_subspace()
    ends = (subspace.layer.evidence.before, subspace.layer.evidence.after)
    return pose_problem(subspace, tuple(backward_signals(view, weights, subspace.layer) for weights in ends))


def true_rows(view: AttackerView, inputs):
    """Solve for the effect ``γ_i`` of every input and return it as unit vectors of the row space."""
    subspace = clues_of(view).require_subspace()
    return unit_rows(torch.linalg.lstsq(with_constant(view, inputs).T, subspace.layer.change).solution, subspace.rows)


def unit_rows(effects, rows):
    """Return effects as unit vectors in coordinates of a row space."""
    coordinates = effects @ rows.T
    return coordinates / coordinates.norm(dim=1, keepdim=True)


def random_change(seed=0, inputs=16, values=80, width=256, sparse=False):
    """Return a network whose first layer moved by a random matrix of low rank, and the effects ``Γ`` in it.

    Every effect is dense, or (``sparse``) zero on a random half of the units that has nothing to do with its input.
    """
    generator = torch.Generator().manual_seed(seed)
    model = MLP(width=width).build((values,), 1, generator)
    initial = {name: weight.double() for name, weight in model.state_dict().items()}
    carried = torch.randn(inputs, values + 1, generator=generator, dtype=torch.float64)
    carried[:, -1] = 1.0
    effects = 1e-2 * torch.randn(inputs, width, generator=generator, dtype=torch.float64)
    if sparse:
        effects *= torch.rand(inputs, width, generator=generator) < 0.5
    change = carried.T @ effects
    moved = {"layer1.weight": change[:-1].T, "layer1.bias": change[-1]}
    # Rounding to float32 makes the noise floor that every stored network has.
    final = {name: (weight + moved.get(name, 0.0)).float() for name, weight in initial.items()}
    initial = {name: weight.float() for name, weight in initial.items()}
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(values,), bounds=None)
    return view, effects


def gate_signals(margins):
    """Return the backward signals of a network with one output whose weights are all one: the gates themselves."""
    return (margins > 0)[:, None, :].to(margins)


def made_problem(
    *,
    seed=0,
    count=6,
    values=24,
    width=160,
    twins=0,
    closeness=0.2,
    outliers=0.0,
    is_ratio_shared=False,
    has_bias=True,
    noise=1e-9,
    traces=0.0,
) -> Solved:
    """Make a problem from known inputs and rows, with gates that hardly move.

    Args:
        seed: the seed of everything.
        count: the number of inputs.
        values: the number of values of an input, besides the constant.
        width: the number of units.
        twins: the number of inputs that are close to the first one.
        closeness: their distance from it, relative to its size.
        outliers: the fraction of units that fired in mid-training only, among those that are off at both ends.
        is_ratio_shared: whether the entries of two rows have the same ratio on all units that both inputs fire.
        has_bias: whether inputs have a constant last value.
        noise: the standard deviation of the noise of the change.
        traces: the size of entries of rows on a third of the units that are off.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = normal(count, values)
    inputs[1 : 1 + twins] = inputs[0] + closeness * normal(twins, values)
    inputs = torch.cat([inputs, torch.ones(count, 1, dtype=torch.float64)], dim=1) if has_bias else inputs
    before = normal(width, inputs.shape[1])
    is_on = inputs @ before.T > 0
    fired = is_on | (torch.rand(count, width, generator=generator) < outliers)
    effects = 1e-5 * fired * (normal(count, 1) * normal(width) if is_ratio_shared else normal(count, width))
    if traces:
        effects = effects + 1e-5 * traces * ~fired * (torch.arange(width) % 3 == 0) * normal(count, width)
    change = inputs.T @ effects
    noisy = change + noise * 1e-5 * normal(*change.shape)
    left, strengths, right = torch.linalg.svd(noisy, full_matrices=False)
    rows = right[:count]
    problem = RowProblem(
        rows=rows,
        basis=left[:, :count],
        strengths=strengths[:count],
        before=before,
        after=before + change.T,
        informative=(change.norm(dim=0) > 1e-4 * change.norm(dim=0).median()).double(),
        noise=noise * 1e-5,
        has_bias=has_bias,
        signals=(gate_signals, gate_signals),
    )
    return Solved(problem, unit_rows(effects, rows), inputs)


def shared_difference(problem, rows):
    """Return the difference of the first two rows that is zero on all units that both inputs fire."""
    one, two = problem.normalise(rows[:2])
    ratio = (one / two)[(one.abs() > 1e-3) & (two.abs() > 1e-3)].median()
    row = (one - ratio * two) @ problem.rows.T
    return row / row.norm()


def cosines(left, right):
    """Return the cosines of each row of one matrix with each of another, without their sign."""
    return torch.cosine_similarity(left[:, None], right[None], dim=2).abs()
