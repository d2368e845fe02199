from .prediction import accuracy, predict
from .private import PrivateTraining, train_privately
from .settings import Training
from .trainer import train

__all__ = ["PrivateTraining", "Training", "accuracy", "predict", "train", "train_privately"]
