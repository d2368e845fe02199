"""Victims whose training data is known, and how much of it a reconstruction holds."""

import copy
import functools
import os
from dataclasses import dataclass, replace

import torch

import exhume
from exhume.attacks.gates.search import row_problem
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


def view_of(data: Dataset, model=MLP(width=256), **settings) -> AttackerView:  # noqa: B008 - frozen
    return exhume.train(data, model=model, device="cpu", **settings).view()


def with_final(view: AttackerView, change) -> AttackerView:
    return replace(view, final={name: change(weight) for name, weight in view.final.items()})


def plainly_trained(model, inputs, targets, *, loss, lr, steps, batch=None, seed=0, **settings):
    """Train a module as a stranger does: a loop around torch.optim.SGD. Returns both ends of it."""
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
    """How a reconstruction compares with the truth, which the attacker never saw."""

    certified: int
    exact: int
    """How many different training inputs were certified and are exact."""
    false: int
    """How many certified inputs are no training input to within :data:`EXACT`."""


def score(found, truth) -> Score:
    truth = truth.flatten(1)
    errors = (found.inputs.flatten(1)[:, None] - truth[None]).abs().amax(dim=2)
    nearest = errors.min(dim=1) if len(found) else None
    if nearest is None:
        return Score(0, 0, 0)
    exact = found.certified & (nearest.values < EXACT)
    distinct = len(set(nearest.indices[exact].tolist()))
    return Score(int(found.certified.sum()), distinct, int((found.certified & ~exact).sum()))


def with_constant(view: AttackerView, inputs):
    """Return inputs in pixel units as the layer's bias and weights see them: flat, with a last value of 1."""
    flat = view.to_model(inputs).flatten(1).double()
    return torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1)


def problem_of(view: AttackerView):
    subspace = clues_of(view).require_subspace()
    ends = (view.initial, view.final)
    return row_problem(subspace, tuple(backward_signals(view, weights, subspace.layer) for weights in ends))


def true_rows(view: AttackerView, inputs):
    """Solve for every input's effect ``γ_i`` and return it in unit coordinates of the row space."""
    subspace = clues_of(view).require_subspace()
    return unit_rows(torch.linalg.lstsq(with_constant(view, inputs).T, subspace.layer.change).solution, subspace.rows)


def unit_rows(effects, rows):
    """Return effects as unit coordinates in a row space."""
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
    # Rounding to float32 leaves the noise floor that every stored network has.
    final = {name: (weight + moved.get(name, 0.0)).float() for name, weight in initial.items()}
    initial = {name: weight.float() for name, weight in initial.items()}
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(values,), bounds=None)
    return view, effects
