"""How a command was called, so that its report can say how to repeat it."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


@contextmanager
def called_with(arguments: Sequence[str]) -> Iterator[None]:
    """Remember the arguments while the command runs."""
    before = _arguments.set(tuple(arguments))
    try:
        yield
    finally:
        _arguments.reset(before)


def invocation() -> str:
    """Return the command as a shell would take it.

    >>> with called_with(["audit", "my run"]):
    ...     invocation()
    "exhume audit 'my run'"
    """
    return shlex.join(["exhume", *_arguments.get()])
