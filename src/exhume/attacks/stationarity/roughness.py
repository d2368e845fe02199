"""The roughness of pictures as a quadratic form: neighbouring pixels of natural pictures differ little."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.search_space import SearchSpace


def roughness_form(
    space: SearchSpace, input_shape: tuple[int, ...], colour: float = 0.0
) -> Float[Tensor, "coordinate coordinate"] | None:
    """Return the mean squared difference of neighbouring pixels as a quadratic form in the coordinates of a space.

    None for inputs that are no images. Without a basis the coordinates are the pixels. Neighbouring colour channels of
    a pixel count with the weight ``colour``.
    """
    if len(input_shape) != 3:
        return None
    directions = torch.eye(space.size, dtype=torch.float64) if space.basis is None else space.basis.double().mT
    images = directions.reshape(-1, *input_shape)
    parts = (images.diff(dim=-2), images.diff(dim=-1), colour**0.5 * images.diff(dim=-3))
    differences = torch.cat([part.flatten(1) for part in parts], 1)
    return differences @ differences.mT / space.size
