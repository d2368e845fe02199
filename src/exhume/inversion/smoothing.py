"""Smooth stand-ins for the kinks of a trunk: ReLU becomes softplus, max pooling a log-sum-exp.

A trunk that is off somewhere, or whose max pooling selects another pixel than the one that is wrong, passes no gradient
there; a search by gradients stops in a local minimum. At a high temperature every unit and every pixel of a window
passes some. Both stand-ins lie above the function that they replace and tend to it as the temperature falls to zero.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

POOL_SETTINGS = ("kernel_size", "stride", "padding", "dilation")
"""Arguments of ``max_pool2d`` after its input, in order."""


class Smoothed(TorchFunctionMode):
    """Run any code inside ``with Smoothed(temperature):`` with smooth activations and max pooling.

    The temperature is in units of the standard deviation of what enters the function, per example.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        called = getattr(function, "__name__", "")
        if called in ("relu", "relu_") and isinstance(args[0], Tensor):
            return smooth_relu(args[0], _width(args[0], self.temperature))
        if called == "max_pool2d" and not named.get("ceil_mode") and len(args) < 6:
            named = {name: named[name] for name in POOL_SETTINGS if name in named}
            return smooth_max_pool(
                args[0], self.temperature, **dict(zip(POOL_SETTINGS, args[1:], strict=False)), **named
            )
        return function(*args, **named)


def _width(values: Tensor, temperature: float) -> Tensor:
    """Return the width of the smoothing per example, as a tensor that broadcasts against ``values``."""
    flat = values.detach().flatten(1)
    variance = flat.square().mean(dim=1) - flat.mean(dim=1).square()
    spread = variance.clamp(min=0).sqrt() * temperature
    return spread.clamp(min=torch.finfo(values.dtype).tiny ** 0.5).reshape(-1, *[1] * (values.ndim - 1))


def smooth_relu(values: Float[Tensor, "example ..."], width: Tensor) -> Float[Tensor, "example ..."]:
    """Return ``width · log(1 + exp(values / width))``."""
    return functional.softplus(values / width) * width


def smooth_max_pool(
    values: Float[Tensor, "example channel height width"],
    temperature: float,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> Float[Tensor, "example channel row column"]:
    """Return the log-sum-exp of every window that ``max_pool2d`` would take the maximum of."""
    tall, wide = _pair(kernel_size)
    down, right = _pair(stride or kernel_size)
    (above, beside), (step, stride_inside) = _pair(padding), _pair(dilation)
    width = _width(values, temperature)
    scaled, lowest = values / width, float(torch.finfo(values.dtype).min) / 4
    padded = functional.pad(scaled, (beside, beside, above, above), value=lowest) if above or beside else scaled
    rows = (padded.shape[2] - step * (tall - 1) - 1) // down + 1
    columns = (padded.shape[3] - stride_inside * (wide - 1) - 1) // right + 1
    shifted = [
        padded[:, :, i * step :: down, j * stride_inside :: right][:, :, :rows, :columns]
        for i in range(tall)
        for j in range(wide)
    ]
    # Faster than torch.logsumexp, which reduces a dimension of four values.
    largest = functools.reduce(torch.maximum, shifted).detach()
    total = functools.reduce(torch.add, [(each - largest).exp() for each in shifted])
    return (largest + total.log()) * width


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
