"""All examples of a source, before a task and a size are chosen."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from exhume.records.record import Bounds

LARGEST_SOURCE = 4 * 2**30
"""Most bytes that a reader loads into memory, whatever a file declares: 4 GiB."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Inputs with their classes; images may stay bytes until they are chosen, which saves memory."""

    inputs: UInt8[Tensor, "example ..."] | Float[Tensor, "example ..."]
    labels: Int[Tensor, " example"]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen ..."]:
        """Return the chosen inputs in pixel units as float32; bytes are divided by 255."""
        return to_unit(self.inputs[chosen])


@dataclass(frozen=True, kw_only=True)
class Source:
    """All examples of one source, with the publisher's test split if there is one."""

    name: str
    train: Examples
    test: Examples | None = None
    classes: tuple[str, ...]
    bounds: Bounds | None
    features: tuple[str, ...] | None = None


def to_unit(values: Shaped[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return values as float32, with bytes divided by 255.

    >>> to_unit(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return values.float() / 255 if values.dtype == torch.uint8 else values.float()


def standardise_columns(
    table: Float[Tensor, "example feature"], like: Float[Tensor, "other feature"] | None = None
) -> Float[Tensor, "example feature"]:
    """Scale columns so that those of ``like`` (default: the table itself) have mean zero and deviation one.

    Constant columns become zero.

    >>> standardise_columns(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    reference = (table if like is None else like).double()
    deviation = reference.std(dim=0, correction=0)
    # The deviation of a constant column is rounding error; dividing by it would turn rounding into data.
    constant = deviation <= 1e-12 * reference.abs().amax(dim=0)
    scaled = (table.double() - reference.mean(dim=0)) / deviation.where(~constant, 1.0)
    return scaled.where(~constant, 0.0).to(table.dtype)
