"""Digits to distil, and the accuracy of kernel regression on a distilled set."""

import functools

from exhume import Dataset, load
from exhume.distillation import RKIP
from exhume.kernels import InfiniteNTK, KernelRegression
from exhume.training.losses import LOSSES

QUICK = {"steps": 200, "learning_rate": 0.03}


@functools.cache
def load_digits(size: int = 300, classes: str = "odd-even") -> Dataset:
    return load("digits", classes=classes, size=size, seed=0)


def kernel_accuracy(distilled: Dataset, data: Dataset, kernel: InfiniteNTK = RKIP().kernel) -> float:  # noqa: B008
    """Return the test accuracy of a network of infinite width trained on the distilled set."""
    regression = KernelRegression.fit(
        kernel,
        data.to_model(distilled.train.inputs).double(),
        LOSSES["mse"].targets(distilled, distilled.train).double(),
    )
    outputs = regression(data.to_model(data.test.inputs).double())
    guesses = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)
    return (guesses == data.test.labels).double().mean().item()
