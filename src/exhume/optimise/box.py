"""The box of valid inputs."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.records import AttackerView


def box_of(view: AttackerView, dtype: torch.dtype) -> tuple[Float[Tensor, " value"], Float[Tensor, " value"]] | None:
    """Return the lowest and highest network input, value by value; None where inputs are unbounded."""
    box = view.model_box()
    return None if box is None else (box[0].to(dtype), box[1].to(dtype))
