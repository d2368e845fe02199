"""Hypergradients: derivatives of trained weights by what they were trained on, implicit and unrolled."""

from exhume.hypergradients.implicit import Implicit
from exhume.hypergradients.problem import Flat, Inputs, LowerLevel, Pullback, TrainingProblem
from exhume.hypergradients.rules import AdamRule, MomentumRule, Rule
from exhume.hypergradients.unrolled import Unrolled, one_step

__all__ = [
    "AdamRule",
    "Flat",
    "Implicit",
    "Inputs",
    "LowerLevel",
    "MomentumRule",
    "Pullback",
    "Rule",
    "TrainingProblem",
    "Unrolled",
    "one_step",
]
