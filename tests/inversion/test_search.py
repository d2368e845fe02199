"""The search: a trunk with max pooling is inverted where plain descent stops, and residuals are traced to pixels."""

import torch

from exhume.core.run_context import RunContext
from exhume.inversion.gauss_newton import MatrixFreeSteps
from exhume.inversion.search import InverseSearch, SearchRules, anneal, locate_residuals, relative_residuals
from tests.inversion.trunks import BOX, SHAPE, draw_images, function_of, plain, pooled


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
        rules=SearchRules(first_steps=80, steps=120, reheated_steps=60, descents=6),
        take_step=MatrixFreeSteps(trunk, 60),
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


def test_residuals_are_traced_to_the_pixel_that_is_wrong() -> None:
    torch.manual_seed(0)
    trunk, images = function_of(plain()), draw_images(1)
    wrong = images.clone()
    wrong[0, 0, 1, 6] += 0.5
    where = locate_residuals(trunk, trunk(images), wrong, 16, torch.Generator().manual_seed(0))
    row, column = divmod(int(where.flatten().argmax()), 8)
    assert abs(row - 1) <= 2
    assert abs(column - 6) <= 2
    assert float(where[0, 0, 7, 0]) < 0.2
