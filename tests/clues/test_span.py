"""The span of the inputs in the final weights alone: it shows where the start was small, and only there."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from exhume.clues.span import LEAST_VALUES, span_of_final_features, span_of_final_weights
from exhume.core.errors import Refusal
from exhume.records import AttackerView
from tests.attacks.stationarity.rest_victims import images, view_at_rest


def view_of_layer(weight: torch.Tensor) -> AttackerView:
    model = nn.Sequential(nn.Linear(weight.shape[1], len(weight), bias=False), nn.ReLU(), nn.Linear(len(weight), 1))
    final = {name: value.double() for name, value in model.state_dict().items()} | {"0.weight": weight}
    return AttackerView(model=model.double(), final=final, input_shape=(weight.shape[1],), bounds=None)


def layer_of(inputs: torch.Tensor, start_size: float, units: int = 60) -> torch.Tensor:
    """Return first-layer weights: sums of inputs, plus a random start of the given size per weight."""
    generator = torch.Generator().manual_seed(1)
    effects = torch.randn(units, len(inputs), generator=generator, dtype=torch.float64)
    start = torch.randn(units, inputs.shape[1], generator=generator, dtype=torch.float64)
    return effects @ inputs + start_size * start


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("start_size", [1e-6, 1e-3])
def test_a_small_start_shows_the_inputs(inputs, start_size):
    span = span_of_final_weights(view_of_layer(layer_of(inputs, start_size)))
    assert span is not None
    assert span.rank == len(inputs)
    outside = inputs - inputs @ span.basis @ span.basis.T
    assert float(outside.norm(dim=1).max() / inputs.norm(dim=1).min()) < 20 * start_size


def test_a_random_layer_shows_nothing():
    assert span_of_final_weights(view_of_layer(layer_of(torch.zeros(5, 40, dtype=torch.float64), 1.0))) is None


def test_too_few_singular_values_show_nothing(inputs):
    assert span_of_final_weights(view_of_layer(layer_of(inputs[:2], 1e-6, units=LEAST_VALUES - 1))) is None


def test_a_rank_that_leaves_no_noise_to_measure_is_refused():
    many = torch.randn(33, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert span_of_final_weights(view_of_layer(layer_of(many, 1e-6))) is None


def test_the_initial_weights_are_not_used(inputs):
    view = view_of_layer(layer_of(inputs, 1e-3))
    other = replace(view, initial={name: torch.ones_like(weight) for name, weight in view.final.items()})
    assert torch.equal(span_of_final_weights(view).basis, span_of_final_weights(other).basis)


def test_a_dense_layer_above_convolutions_spans_the_features():
    inputs = images(5)
    view = view_at_rest(inputs)
    span = span_of_final_features(view)
    assert span.rank == len(inputs)
    features = nn.functional.pad(view.model[0](inputs).detach(), (0, 1), value=1.0)
    outside = features - features @ span.basis @ span.basis.T
    assert float((outside.norm(dim=1) / features.norm(dim=1)).max()) < 1e-3


def test_initial_weights_hide_the_features():
    with pytest.raises(Refusal, match="no clear number of directions"):
        span_of_final_features(view_at_rest(images(5), noise=0.3))


def test_a_network_without_layers_below_has_no_features(inputs):
    with pytest.raises(Refusal, match="is dense"):
        span_of_final_features(view_of_layer(layer_of(inputs, 1e-6)))
