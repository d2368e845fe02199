"""The box of valid inputs, and the penalty for leaving it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.records import AttackerView

Inputs = Float[Tensor, "*run candidate value"]


@dataclass(frozen=True)
class Box:
    """The lowest and the highest network input, per value."""

    lowest: Float[Tensor, "... value"]
    highest: Float[Tensor, "... value"]

    @classmethod
    def of(cls, view: AttackerView, dtype: torch.dtype) -> "Box | None":
        """Return the box of a view's inputs, or None where they are unbounded."""
        bounds = view.model_box()
        return None if bounds is None else cls(bounds[0].to(dtype), bounds[1].to(dtype))

    @classmethod
    def side_by_side(cls, boxes: Sequence["Box"]) -> "Box":
        """Return the boxes of many runs as one, with a first dimension of runs."""
        lowest, highest = (torch.stack([getattr(box, end) for box in boxes])[:, None] for end in ("lowest", "highest"))
        return cls(lowest, highest)

    def to(self, dtype: torch.dtype) -> "Box":
        """Return the same box with another dtype."""
        return Box(self.lowest.to(dtype), self.highest.to(dtype))

    def violation(self, inputs: Inputs) -> Inputs:
        """Return how far each value lies outside, with its sign; zero inside.

        >>> Box(torch.zeros(3), torch.ones(3)).violation(torch.tensor([[-0.5, 0.5, 3.0]]))
        tensor([[-0.5000,  0.0000,  2.0000]])
        """
        return inputs - inputs.clamp(self.lowest, self.highest)

    def penalty(self, inputs: Inputs, weight: float) -> tuple[Float[Tensor, "*run"], Inputs]:
        """Return ``weight`` times the sum of squared violations, per run, and its gradient by inputs."""
        square, violation = self.squared_violation(inputs)
        return weight * square, 2 * weight * violation

    def squared_violation(self, inputs: Inputs) -> tuple[Float[Tensor, "*run"], Inputs]:
        """Return the sum of squared violations, per run, and the violations, which are half its gradient."""
        violation = self.violation(inputs)
        # A norm reads the tensor once, and squares of many pictures would be a tensor of their own.
        precise = torch.promote_types(violation.dtype, torch.float32)
        return torch.linalg.vector_norm(violation, dim=(-2, -1), dtype=precise).square(), violation
