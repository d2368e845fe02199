"""Sums of gradients: weight changes, gradients and first moments, and which of them a view is read by."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import exhume
from exhume.clues.clues import clues_of
from exhume.clues.evidence import find_evidence
from exhume.clues.first_layer import backward_signals, read_first_layer
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView, GradientAt, Split
from tests.attacks.gates.evidence_victims import gradient_view, state_view
from tests.attacks.gates.victims import draw, view_of, with_constant


def residual(layer, inputs) -> float:
    """Return the part of a layer's change outside the span of inputs."""
    return float((layer.change - inputs.T @ (torch.linalg.pinv(inputs.T) @ layer.change)).norm() / layer.change.norm())


@pytest.mark.parametrize("parameterisation", ["standard", "ntk"])
def test_a_gradient_is_inputs_times_signals(parameterisation):
    data = draw(size=6)
    view = gradient_view(data, MLP(width=32, parameterisation=parameterisation), dtype=torch.float64)
    layer = read_first_layer(view)
    assert layer.evidence.kind == "gradient"
    assert torch.equal(layer.before, layer.after)
    inputs = with_constant(view, data.train.inputs)
    outputs = view.module(view.final)(view.to_model(data.train.inputs).double())
    errors = 2 * (outputs - data.train.labels[:, None]) / len(inputs)
    signals = backward_signals(view, view.final, layer)(inputs @ layer.after.T)
    torch.testing.assert_close(layer.change, inputs.T @ (errors[:, :, None] * signals).sum(dim=1))


@pytest.mark.parametrize(
    "optimiser", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "centred RMSprop", "SGD with decay", "Adam with decay"]
)
def test_a_first_moment_lies_in_the_span_of_the_inputs(optimiser):
    data = draw(size=6)
    view = state_view(data, MLP(width=64), optimiser=optimiser, steps=20, dtype=torch.float64)
    subspace = clues_of(view).require_subspace()
    assert subspace.layer.evidence.kind == "optimiser state"
    if "with decay" in optimiser:
        # Adam moves weights outside the span while it sums them, by lr·k·decay at most.
        assert residual(subspace.layer, with_constant(view, data.train.inputs)) < 1e-3
        assert subspace.layer.decay_factor != 0.0
        assert residual(replace(subspace.layer, decay_factor=0.0), with_constant(view, data.train.inputs)) > 1e-2
    else:
        assert residual(subspace.layer, with_constant(view, data.train.inputs)) < 1e-10
        assert subspace.rank == 6


def test_one_step_has_the_gates_of_the_initial_weights():
    data = draw(size=6)
    view = view_of(data, MLP(width=32), steps=1, lr=0.1)
    assert view.training.steps == 1
    (evidence,) = find_evidence(view)
    assert evidence.is_local
    assert evidence.after is view.initial
    assert not find_evidence(view_of(data, MLP(width=32), steps=2, lr=0.1))[0].is_local


def test_the_evidence_that_shows_most_inputs_is_read():
    data = draw(size=6)
    both = view_of(data, MLP(width=64), steps=50)
    few = replace(data, train=Split(inputs=data.train.inputs[:3], labels=data.train.labels[:3]))
    gradient = gradient_view(few, MLP(width=64), final=both.final).gradient
    view = replace(both, gradient=gradient)
    assert clues_of(view).require_first_layer().evidence.kind == "gradient"
    assert clues_of(view).require_subspace().layer.evidence.kind == "weight change"
    every = gradient_view(data, MLP(width=64), final=both.final).gradient
    assert clues_of(replace(both, gradient=every)).require_subspace().layer.evidence.kind == "gradient"


def test_a_view_without_any_sum_of_gradients_says_what_is_missing():
    view = replace(view_of(draw(size=6), MLP(width=32), steps=2, lr=0.1), initial=None)
    with pytest.raises(Refusal, match="no initial weights, no gradient and no optimiser state"):
        find_evidence(view)


def test_a_gradient_of_zero_or_of_upper_layers_alone_is_refused():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    zeros = {name: torch.zeros_like(weight) for name, weight in model.state_dict().items()}
    view = AttackerView(model=model, final=model.state_dict(), gradient=zeros, input_shape=(3,))
    with pytest.raises(Refusal, match="gradient is zero"):
        read_first_layer(view)
    with pytest.raises(Refusal, match="gradient is zero"):
        exhume.attacks.WeightDifference().check(view)
    bias_alone = {"0.bias": torch.ones(4)}
    with pytest.raises(Refusal, match="says nothing about the weights"):
        read_first_layer(replace(view, gradient=bias_alone))
    with pytest.raises(Refusal, match=r"lacks 0.weight and 2 more"):
        exhume.attacks.WeightDifference(candidates=3).check(replace(view, gradient=bias_alone))


def test_gradients_of_the_same_data_are_further_units_for_the_same_inputs():
    data = draw(size=6)
    first, second = (gradient_view(data, MLP(width=32), dtype=torch.float64, seed=seed) for seed in (0, 1))
    more = (GradientAt(weights=second.final, gradient=second.gradient),)
    both = replace(first, more_gradients=more)
    layer = read_first_layer(both)
    inputs = with_constant(both, data.train.inputs)
    assert layer.change.shape == (65, 64)
    assert residual(layer, inputs) < 1e-10
    assert clues_of(both).require_subspace().rank == 6
    signals = backward_signals(both, both.final, layer)(inputs @ layer.after.T)
    for part, view in zip(signals.chunk(2, dim=2), (first, second), strict=True):
        alone = read_first_layer(view)
        torch.testing.assert_close(part, backward_signals(view, view.final, alone)(inputs @ alone.after.T))
