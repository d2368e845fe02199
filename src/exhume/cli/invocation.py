"""The arguments of the running command, which reports print so that readers can repeat it."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


@contextmanager
def remember_arguments(arguments: Sequence[str]) -> Iterator[None]:
    """Make the arguments available to :func:`format_invocation` while the command runs."""
    before = _arguments.set(tuple(arguments))
    try:
        yield
    finally:
        _arguments.reset(before)


def format_invocation() -> str:
    """Return the running command, quoted for a shell.

    >>> with remember_arguments(["audit", "my run"]):
    ...     format_invocation()
    "exhume audit 'my run'"
    """
    return shlex.join(["exhume", *_arguments.get()])
