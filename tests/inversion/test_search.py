"""The search: a trunk with max pooling is inverted where plain descent stops, and residuals are traced to pixels."""

import pytest
import torch
from torch import nn

from exhume.core.run_context import RunContext
from exhume.inversion.conditioning import find_footprints
from exhume.inversion.gauss_newton import MatrixFreeSteps
from exhume.inversion.search import InverseSearch, SearchRules, anneal, locate_by_probes, relative_residuals
from tests.inversion.trunks import BOX, SHAPE, draw_images, function_of, pooled


def test_smoothing_and_repeated_descents_reach_what_plain_descent_does_not() -> None:
    torch.manual_seed(0)
    trunk, images = function_of(pooled()), draw_images(6)
    features = trunk(images)
    search = InverseSearch(
        trunk=trunk,
        features=features,
        box=BOX,
        tolerance=torch.full((6,), 1e-5).double(),
        generator=torch.Generator().manual_seed(0),
        rules=SearchRules(first_steps=80, reheated_steps=60, mixing_steps=40, descents=6),
        take_step=MatrixFreeSteps(trunk, 60),
        locate=locate_by_probes(trunk),
        inputs=torch.full((6, *SHAPE), 0.5).double(),
        residuals=torch.full((6,), torch.inf).double(),
    )
    search.run(RunContext.start())
    starts = torch.full((6, *SHAPE), 0.5)
    plainly = anneal(trunk, features, starts, BOX, search.rules, temperature=0.0, steps=400, rate=0.05)
    solved = int((search.residuals < 1e-5).sum())
    assert solved >= 4
    assert solved > int((relative_residuals(trunk, features, plainly) < 1e-5).sum())
    assert torch.equal(search.residuals, relative_residuals(trunk, features.double(), search.inputs))


@pytest.mark.parametrize("is_large", [False, True])
def test_residuals_are_traced_to_the_pixel_that_is_wrong(is_large: bool) -> None:
    torch.manual_seed(0)
    trunk, images = function_of(pooled()), draw_images(1)
    locate = locate_by_probes(trunk) if is_large else find_footprints(trunk, SHAPE, images).locate
    wrong = images.clone()
    wrong[0, 0, 1, 6] += 0.5
    where = locate(wrong, trunk(wrong) - trunk(images))
    row, column = divmod(int(where.flatten().argmax()), 8)
    assert abs(row - 1) <= 2
    assert abs(column - 6) <= 2
    assert float(where[0, 0, 7, 0]) < 0.2 * float(where.max())


def test_footprints_see_the_residual_of_units_that_are_off() -> None:
    trunk = function_of(nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU()))
    images = torch.zeros(1, *SHAPE)
    missing = torch.zeros(1, 2, 8, 8)
    missing[0, 1, 3, 5] = 2.0
    where = find_footprints(trunk, SHAPE, images).locate(images, missing.flatten(1))
    expected = torch.zeros(1, *SHAPE)
    expected[0, 0, 3, 5] = 4.0
    assert torch.equal(where, expected)
