"""Training: victims whose start, end and every setting are known."""

from exhume.training.prediction import accuracy, predict
from exhume.training.settings import Training
from exhume.training.trainer import train

__all__ = ["Training", "accuracy", "predict", "train"]
