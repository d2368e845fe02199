"""Training: victims whose start, end and every setting are known."""

from exhume.training.prediction import accuracy, predict
from exhume.training.private import PrivateTraining, train_privately
from exhume.training.settings import Training
from exhume.training.trainer import train

__all__ = ["PrivateTraining", "Training", "accuracy", "predict", "train", "train_privately"]
