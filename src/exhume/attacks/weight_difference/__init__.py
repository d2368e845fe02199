"""WeightDifference: explain the weight change by inputs and duals."""

from exhume.attacks.weight_difference.weight_difference import WeightDifference

__all__ = ["WeightDifference"]
