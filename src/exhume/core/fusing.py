"""Fuse the elementwise operations of a function into one kernel on a GPU, where memory traffic decides the speed."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

VARIANTS = 64
"""Most variants of a function (dtypes, numbers of dimensions, arguments that are None) that are compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])


def fused(function: Function) -> Function:
    """Compile a function of tensors for GPUs with ``torch.compile``; elsewhere, and where that fails, call it as it is.

    The first argument decides the device. Shapes may differ from call to call.

    >>> @fused
    ... def squared_distance(one, other):
    ...     return (one - other).square().sum()
    >>> squared_distance(torch.ones(2), torch.zeros(2))
    tensor(2.)
    """
    compiled: Callable[..., Any] | None = None
    is_broken = False

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal compiled, is_broken
        if is_broken or not arguments[0].is_cuda:
            return function(*arguments)
        if compiled is None:  # not earlier, since importing the compiler takes seconds
            compiled = torch.compile(function, dynamic=True)
        try:
            with torch._dynamo.config.patch(recompile_limit=VARIANTS):
                return compiled(*arguments)
        except Exception as error:  # the compiler needs Triton and a C compiler, and fails in many ways without them
            is_broken = True
            warnings.warn(
                f"{function.__name__} runs unfused, since torch.compile failed: {type(error).__name__}.", stacklevel=2
            )
            return function(*arguments)

    return call  # type: ignore[return-value]
