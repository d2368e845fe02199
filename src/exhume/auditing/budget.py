"""The time that the attacks of an audit may take together."""

import math
import time
from dataclasses import dataclass

AUTO_MINUTES = 10.0
"""Budget in minutes where attacks are chosen automatically: long enough for the certificate of a small network."""


@dataclass(frozen=True)
class Budget:
    """A deadline for several pieces of work that run one after the other."""

    deadline: float = math.inf
    """On the clock of :func:`time.monotonic`."""

    @classmethod
    def start(cls, minutes: float | None) -> "Budget":
        """Return a budget that runs from now; None: no limit."""
        return cls() if minutes is None else cls(time.monotonic() + 60 * minutes)

    def seconds_left(self) -> float:
        """Return the seconds until the deadline; negative after it."""
        return self.deadline - time.monotonic()


def default_minutes(*, is_auto: bool) -> float | None:
    """Return the budget where none is stated: attacks that were asked for by name may take as long as they need."""
    return AUTO_MINUTES if is_auto else None
