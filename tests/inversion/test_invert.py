"""Inversion of every kind of trunk, its outcomes, and a control that must not be called determined."""

import pytest
import torch
from torch import nn

from exhume.core.run_context import OutOfTime, RunContext
from exhume.inversion.invert import InversionRules, Preimage, invert
from exhume.inversion.search import SearchRules
from tests.inversion.trunks import BOX, draw_images, function_of, plain, pooled, residual

QUICK = InversionRules(search=SearchRules(first_steps=80, reheated_steps=60, mixing_steps=40, descents=6))


@pytest.mark.parametrize("build", [plain, pooled, residual], ids=lambda build: build.__name__)
def test_images_are_determined_and_within_their_error_bound(build: type[nn.Module]) -> None:
    torch.manual_seed(0)
    trunk, images = function_of(build()), draw_images()
    found = invert(trunk, trunk(images), BOX, RunContext.start(), rules=QUICK)
    errors = (found.inputs - images).flatten(1).abs().amax(dim=1)
    is_determined = torch.tensor([outcome == Preimage.DETERMINED for outcome in found.outcomes])
    assert int(is_determined.sum()) >= 2
    assert bool((errors[is_determined] <= found.errors[is_determined]).all())
    assert bool((found.errors[is_determined] < 0.02).all())
    assert bool(found.errors[~is_determined].isinf().all())


def test_too_few_features_leave_several_solutions_with_their_spread() -> None:
    torch.manual_seed(0)
    trunk = function_of(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.AvgPool2d(2)))
    found = invert(trunk, trunk(draw_images(2)), BOX, RunContext.start(), rules=QUICK)
    assert found.outcomes == [Preimage.SEVERAL] * 2
    assert min(found.free) >= 64 - 16
    assert float(found.spread.max()) > 0.1


def test_features_that_no_input_has_are_not_reached() -> None:
    torch.manual_seed(0)
    trunk = function_of(plain())
    features = trunk(draw_images(2))
    found = invert(trunk, features[:, torch.randperm(features.shape[1])], BOX, RunContext.start(), rules=QUICK)
    assert found.outcomes == [Preimage.NOT_REACHED] * 2


def test_noisy_features_give_a_wider_bound_that_holds() -> None:
    torch.manual_seed(0)
    trunk, images = function_of(plain()), draw_images()
    exact = trunk(images)
    noisy = (exact + 1e-4 * torch.randn_like(exact)).clamp(min=0)
    found = invert(trunk, noisy, BOX, RunContext.start(), errors=torch.full((3,), 5.5e-4), rules=QUICK)
    assert found.outcomes == [Preimage.DETERMINED] * 3
    errors = (found.inputs - images).flatten(1).abs().amax(dim=1)
    assert bool((errors <= found.errors).all())
    assert bool((found.errors > 1e-5).all())


def test_inputs_too_large_for_a_gram_matrix_are_found_and_not_called_determined() -> None:
    torch.manual_seed(0)
    trunk, images = function_of(plain()), draw_images(1)
    rules = InversionRules(largest_input=10, search=QUICK.search)
    found = invert(trunk, trunk(images), BOX, RunContext.start(), rules=rules)
    assert found.outcomes == [Preimage.UNEXAMINED]
    assert float((found.inputs - images).abs().max()) < 1e-3


def test_inversion_stops_at_its_deadline() -> None:
    trunk = function_of(plain())
    with pytest.raises(OutOfTime):
        invert(trunk, trunk(draw_images()), BOX, RunContext.start(seconds=-1.0), rules=QUICK)
