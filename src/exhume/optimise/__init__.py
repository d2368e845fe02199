"""Optimise: the loop that minimises an objective for one run or many, and the box of valid inputs."""

from exhume.optimise.adam import Adam, Decay
from exhume.optimise.loop import Objective, minimise, minimise_together
from exhume.optimise.outcomes import Minimum, Variables

__all__ = [
    "Adam",
    "Decay",
    "Minimum",
    "Objective",
    "Variables",
    "minimise",
    "minimise_together",
]
