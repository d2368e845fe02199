"""Inputs that the span of all features proves: true ones are found and bounded, and nothing else is."""

import pytest
import torch
from torch import Tensor, nn

from exhume.inversion.conditioning import find_footprints, jacobian, normal_matrix
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, Trunk
from exhume.inversion.isolation import Isolated, isolate
from exhume.inversion.rules import InversionRules
from tests.inversion.trunks import SHAPE, function_of, plain, residual

BOX = InputBox(torch.zeros(SHAPE).double(), torch.ones(SHAPE).double())


def images(count: int = 6, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed)).double()


def span_of(trunk: Trunk, inputs: Tensor, *, noise: float = 0.0, extra: Tensor | None = None) -> FeatureSpan:
    """Return the span that a change of full rank shows; ``extra`` is added to the features."""
    features = trunk(inputs)
    whole = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
    whole = whole if extra is None else whole + extra
    generator = torch.Generator().manual_seed(1)
    effects = torch.randn(len(inputs), 40, generator=generator).double()
    change = whole.T @ effects
    change = change + noise * torch.randn(change.shape, generator=generator).double()
    left, strengths, _ = torch.linalg.svd(change, full_matrices=False)
    return FeatureSpan(basis=left[:, : len(inputs)], strengths=strengths[: len(inputs)], noise=noise)


def prove(trunk: Trunk, span: FeatureSpan, start: Tensor, others: Tensor) -> Isolated | None:
    footprints = find_footprints(trunk, SHAPE, start)
    return isolate(trunk, span, start, trunk(others), BOX, footprints, InversionRules())


@pytest.fixture
def trunk() -> Trunk:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return function_of(plain())


def test_combinations_of_features_are_inside_and_noise_is_predicted(trunk: Trunk) -> None:
    inputs = images()
    exact, noisy = span_of(trunk, inputs), span_of(trunk, inputs, noise=1e-4)
    mixed = 0.3 * trunk(inputs[:1]) + 0.7 * trunk(inputs[1:2])
    assert float(exact.outside(mixed).abs().max()) < 1e-12
    assert float(exact.outside(trunk(images(1, seed=9))).abs().max()) > 1e-2
    seen, expected = noisy.outside(trunk(inputs)).std(dim=1), noisy.deviation(trunk(inputs))
    assert bool(((seen / expected - 1).abs() < 0.2).all())


def test_the_normal_matrix_outside_a_span_equals_the_dense_one(trunk: Trunk) -> None:
    inputs = images()
    span = span_of(trunk, inputs)
    matrix = jacobian(trunk, inputs[0], find_footprints(trunk, SHAPE, inputs))
    whole = torch.cat([torch.from_numpy(matrix.toarray()), torch.zeros(1, inputs[0].numel())])
    outside = whole - span.basis @ (span.basis.T @ whole)
    torch.testing.assert_close(torch.from_numpy(normal_matrix(matrix, span)), outside.T @ outside)


@pytest.mark.parametrize("make", [plain, residual])
def test_inputs_near_true_ones_are_proven_within_their_bound(make) -> None:  # type: ignore[no-untyped-def]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trunk = function_of(make())
    inputs = images()
    span = span_of(trunk, inputs, noise=1e-7)
    for one in inputs:
        start = (one + 0.01 * (images(1, seed=5)[0] - 0.5)).clamp(0, 1)
        found = prove(trunk, span, start, inputs)
        assert found is not None
        assert float((found.inputs - one).abs().max()) <= found.error + 1e-12 <= 0.02


def test_mixtures_and_strangers_are_not_proven(trunk: Trunk) -> None:
    inputs = images()
    span = span_of(trunk, inputs, noise=1e-7)
    for start in ((inputs[0] + inputs[1]) / 2, 0.9 * inputs[2] + 0.1 * inputs[3], images(1, seed=7)[0]):
        found = prove(trunk, span, start, inputs)
        errors = [] if found is None else (inputs - found.inputs).flatten(1).abs().amax(dim=1).tolist()
        assert found is None or min(errors) <= found.error  # it may lead back to an input


def test_a_linear_trunk_proves_nothing() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trunk = function_of(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1)))
    inputs = images()
    span = span_of(trunk, inputs)
    assert prove(trunk, span, inputs[0], inputs) is None
    assert prove(trunk, span, (inputs[0] + inputs[1]) / 2, inputs) is None


@pytest.mark.parametrize("part", [1e-5, 1e-3, 0.03, 0.3])
def test_a_hidden_input_moves_no_proven_one_beyond_its_bound(trunk: Trunk, part: float) -> None:
    inputs, hidden = images(), trunk(images(1, seed=8))
    extra = torch.cat([part * hidden, torch.tensor([[part]]).double()], dim=1)
    span = span_of(trunk, inputs, extra=extra.expand(len(inputs), -1))
    for one in inputs:
        found = prove(trunk, span, one, inputs)
        assert found is None or float((found.inputs - one).abs().max()) <= found.error
    assert (found is None) == (part >= 1e-3)
