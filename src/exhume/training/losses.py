"""Training losses, each with the label encoding it expects and a bound of its curvature."""

from abc import ABC, abstractmethod
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from exhume.core.errors import ExhumeError
from exhume.records import Dataset, Split

Outputs = Float[Tensor, "example output"]


class Loss(ABC):
    """A loss, averaged over examples, with the targets that it compares outputs with."""

    attained: ClassVar[bool]
    """Whether some outputs reach the minimum; cross-entropies only approach it as weights grow without limit."""

    @abstractmethod
    def __call__(self, outputs: Outputs, targets: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch."""

    @abstractmethod
    def curvature(self, outputs: int) -> float:
        """Return the largest second derivative of one example's loss in its outputs, which limits a stable step."""

    @abstractmethod
    def encode(self, labels: Int[Tensor, " example"], classes: int) -> Tensor:
        """Encode class indices as targets."""

    def check_soft(self, targets: Outputs) -> Tensor:
        """Return soft targets as this loss takes them.

        Raises:
            ExhumeError: when the loss cannot take them.
        """
        return targets

    def outputs(self, data: Dataset) -> int:
        """Return the number of outputs of a network trained on ``data`` with this loss."""
        return data.outputs

    @final
    def targets(self, data: Dataset, split: Split) -> Tensor:
        """Return the targets of a split: its soft targets where it has them, else its encoded labels."""
        if split.targets is not None:
            return self.check_soft(split.targets)
        return self.encode(split.labels, len(data.classes))


def signed_or_centred(labels: Int[Tensor, " example"], classes: int) -> Outputs:
    """Encode two classes as −1 and +1, more as one-hot − 1/C, which is zero on average over balanced classes.

    >>> signed_or_centred(torch.tensor([0, 1]), 2)
    tensor([[-1.],
            [ 1.]])
    """
    if classes == 2:
        return 2.0 * labels[:, None].float() - 1.0
    return functional.one_hot(labels.long(), classes).float() - 1.0 / classes


def margin_directions(
    outputs: Float[Tensor, "*run example output"], labels: Int[Tensor, " example"]
) -> Float[Tensor, "*run example output"]:
    """Return the gradient of each example's margin by its outputs.

    The margin is ``y·f`` for one output and ``f_y − max_{c≠y} f_c`` for several.

    >>> margin_directions(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([0])).tolist()
    [[1.0, -1.0, 0.0]]
    """
    if outputs.shape[-1] == 1:
        return (2 * labels[:, None] - 1).to(outputs).expand_as(outputs)
    classes = torch.arange(outputs.shape[-1], device=outputs.device)
    is_own = classes == labels[:, None]
    is_rival = classes == outputs.masked_fill(is_own, -torch.inf).argmax(-1, keepdim=True)
    return is_own.to(outputs) - is_rival.to(outputs)


class _Regression(Loss):
    """A mean over examples and outputs of a distance with curvature one."""

    attained = True

    def curvature(self, outputs: int) -> float:
        """Return 1 divided by the number of outputs, since the loss is a mean over them."""
        return 1.0 / outputs

    def encode(self, labels: Int[Tensor, " example"], classes: int) -> Tensor:
        """Encode labels as ±1 or as centred one-hot rows."""
        return signed_or_centred(labels, classes)


@final
class MeanSquares(_Regression):
    """``½ · mean((f − y)²)`` over examples and outputs."""

    def __call__(self, outputs: Outputs, targets: Tensor) -> Float[Tensor, ""]:
        """Return half the mean square."""
        return 0.5 * functional.mse_loss(outputs, targets)


@final
class Huber(_Regression):
    """Half squares up to a distance of one and linear beyond; the mean over examples and outputs."""

    def __call__(self, outputs: Outputs, targets: Tensor) -> Float[Tensor, ""]:
        """Return the mean Huber loss."""
        return functional.huber_loss(outputs, targets)


@final
class BinaryCrossEntropy(Loss):
    """Logistic loss of one output for two classes, labelled 0 and 1."""

    attained = False

    def __call__(self, outputs: Outputs, targets: Tensor) -> Float[Tensor, ""]:
        """Return the mean logistic loss."""
        return functional.binary_cross_entropy_with_logits(outputs, targets)

    def curvature(self, outputs: int) -> float:
        """Return the curvature at even odds, where it is largest."""
        return 0.25

    def encode(self, labels: Int[Tensor, " example"], classes: int) -> Tensor:
        """Encode labels as 0 and 1."""
        if classes != 2:
            raise ExhumeError(f"The loss bce is for two classes, the data has {classes}; train with ce.")
        return labels[:, None].float()

    def check_soft(self, targets: Outputs) -> Tensor:
        """Accept probabilities only."""
        if targets.min() < 0 or targets.max() > 1:
            raise ExhumeError("The soft targets of this data are not probabilities; train with mse, not bce.")
        return targets


@final
class CrossEntropy(Loss):
    """Softmax cross-entropy with one output per class, also for two classes."""

    attained = False

    def __call__(self, outputs: Outputs, targets: Tensor) -> Float[Tensor, ""]:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def curvature(self, outputs: int) -> float:
        """Return the curvature at even odds between two classes, where it is largest."""
        return 0.5

    def encode(self, labels: Int[Tensor, " example"], classes: int) -> Tensor:
        """Return class indices as they are."""
        return labels.long()

    def check_soft(self, targets: Outputs) -> Tensor:
        """Accept rows of probabilities only."""
        if targets.shape[1] < 2 or targets.min() < 0 or not torch.allclose(targets.sum(1), targets.new_ones(())):
            raise ExhumeError("The soft targets of this data are not probabilities; train with mse, not ce.")
        return targets

    def outputs(self, data: Dataset) -> int:
        """Return one output per class, so that two classes have two."""
        return data.outputs if data.train.targets is not None else len(data.classes)


LOSSES: dict[str, Loss] = {
    "mse": MeanSquares(),
    "bce": BinaryCrossEntropy(),
    "ce": CrossEntropy(),
    "huber": Huber(),
}
