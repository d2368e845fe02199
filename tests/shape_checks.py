"""Check the shapes in signatures in every test, once for each new combination of argument shapes and types.

A search calls the same functions thousands of times with the same shapes. Checking every call took most of the time of
such a test. The first calls of each kind are checked, in every test anew, so an error of shapes is found as before.
"""

import functools
from collections import Counter
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any

import jaxtyping
from torch import Tensor

CHECKED_CALLS = 3
"""Calls per test to check for each combination of argument shapes and types; above one, since results may vary."""

seen: Counter[Hashable] = Counter()
"""Number of calls in this test, by function and kind of arguments."""


def kind_of(value: Any) -> Hashable:
    """Return what decides whether a value fits a signature: the shape of a tensor, or the type of anything else."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, tuple | list):
        return type(value), tuple(map(kind_of, value))
    return (type(value), value) if isinstance(value, int | str | None) else type(value)


def check_new_shapes(function: Any = None, *, typechecker: Any = None) -> Any:
    """Decorate like ``jaxtyping.jaxtyped``, but check only the first calls for each kind of arguments."""
    if function is None:
        return functools.partial(check_new_shapes, typechecker=typechecker)
    if not isinstance(function, FunctionType):
        return jaxtyped(function, typechecker=typechecker)
    checked: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        kind = function.__code__, tuple(map(kind_of, args)), tuple((key, kind_of(kwargs[key])) for key in kwargs)
        if seen[kind] >= CHECKED_CALLS:
            return function(*args, **kwargs)
        seen[kind] += 1
        if checked is None:
            checked = jaxtyped(function, typechecker=typechecker)
        return checked(*args, **kwargs)

    return call


jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """Replace the decorator that jaxtyping's import hook puts on every function; call before exhume is imported."""
    jaxtyping.jaxtyped = check_new_shapes
