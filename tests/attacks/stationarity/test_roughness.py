"""The roughness of pictures."""

import pytest
import torch

from exhume.attacks.stationarity.roughness import roughness_form
from exhume.clues.search_space import SearchSpace


@pytest.mark.parametrize("basis", [None, torch.linalg.qr(torch.ones(12, 4).tril().double()).Q])
def test_roughness_is_the_mean_squared_difference_of_neighbours(basis):
    space = SearchSpace(12, basis, None if basis is None else 0.3)
    form = roughness_form(space, (1, 3, 4))
    free = torch.randn(2, space.dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    coordinates = space.coordinates(free)
    images = space.inputs(coordinates).reshape(2, 3, 4)
    slow = sum(images.diff(dim=dim).square().sum((1, 2)) for dim in (1, 2)) / 12
    torch.testing.assert_close(((coordinates @ form) * coordinates).sum(1), slow)
    assert roughness_form(space, (12,)) is None


def test_colour_channels_count_as_neighbours():
    form = roughness_form(SearchSpace(24), (2, 3, 4), colour=0.5)
    image = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pixels = sum(image.diff(dim=dim).square().sum() for dim in (1, 2))
    slow = (pixels + 0.5 * image.diff(dim=0).square().sum()) / 24
    torch.testing.assert_close(image.flatten() @ form @ image.flatten(), slow)
