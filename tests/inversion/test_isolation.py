"""Inputs that the span of all features proves: true ones are found and bounded, and nothing else is."""

import pytest
import torch
from torch import Tensor, nn

from exhume.inversion.conditioning import find_footprints, jacobian, normal_matrix
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, Trunk
from exhume.inversion.isolation import Isolated, has_spare_features, isolate, share_parts
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


def prove(trunk: Trunk, span: FeatureSpan, start: Tensor, others: Tensor, box: InputBox = BOX) -> Isolated | None:
    return isolate(trunk, span, start, others, box, find_footprints(trunk, SHAPE, start), InversionRules())


@pytest.fixture
def trunk() -> Trunk:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return function_of(plain())


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


def test_nothing_is_isolated_without_a_range_or_another_input(trunk: Trunk) -> None:
    inputs = images()
    span, ends = span_of(trunk, inputs), torch.full(SHAPE, torch.inf).double()
    assert prove(trunk, span, inputs[0], inputs, InputBox(-ends, ends)) is None
    assert prove(trunk, span, inputs[0], inputs[:1]) is None


@pytest.mark.parametrize("contrast", [0.5, 1.0])
def test_a_scale_that_the_span_leaves_open_is_not_taken_for_determined(contrast: float) -> None:
    """Without biases, any multiple of an image has features in the span, up to noise; many features average it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.ReLU())
        trunk = function_of(nn.Sequential(*layers, nn.Conv2d(64, 128, 3, padding=1, bias=False), nn.ReLU()))
    inputs = contrast * images()
    features = trunk(inputs)
    left, strengths, _ = torch.linalg.svd(features.T @ torch.randn(6, 40).double(), full_matrices=False)
    span = FeatureSpan(basis=left[:, :6], strengths=strengths[:6], noise=1e-6)
    noisy = FeatureSpan(
        basis=torch.linalg.qr(span.basis + 1e-6 * torch.randn(span.basis.shape) / span.strengths).Q,
        strengths=span.strengths,
        noise=1e-6,
    )
    assert prove(trunk, noisy, 0.8 * inputs[0], inputs[1:]) is None


def test_images_composed_of_parts_share_them_and_others_do_not(trunk: Trunk) -> None:
    inputs = images(5)
    inputs[3] = torch.cat([inputs[0, :, :4], inputs[1, :, 4:]], dim=1)
    footprints = find_footprints(trunk, SHAPE, inputs)
    shares = share_parts(inputs, footprints, BOX, InversionRules())
    assert shares.tolist() == [True, True, False, True, False]
    again = torch.cat([inputs[:3], inputs[2:3] + 1e-4])  # the same input twice is one
    assert not bool(share_parts(again, footprints, BOX, InversionRules()).any())


def test_copies_of_features_are_no_spare_equations(trunk: Trunk) -> None:
    narrow = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 12, 1))
    assert has_spare_features(trunk, BOX, 6, InversionRules())
    assert not has_spare_features(function_of(narrow), BOX, 6, InversionRules())
