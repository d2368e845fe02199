from . import attacks
from .auditing import assess, audit, find_base, find_seed
from .core.errors import DataError, ExhumeError, RecordError, Refusal, WeightsError
from .core.weight_files import load_weights
from .data import load
from .distillation import KIP, RKIP, RKIPFinite, distil
from .evaluation import evaluate, find_copies, verdict
from .models import MLP, ConvNet, ResNet
from .records import (
    AttackerView,
    Audit,
    Dataset,
    Evaluation,
    GradientAt,
    OptimiserState,
    Outcome,
    PublicTraining,
    Reconstruction,
    Split,
    Victim,
)
from .report import report, save_figures
from .training import train
from .version import __version__

__all__ = [
    "KIP",
    "MLP",
    "RKIP",
    "AttackerView",
    "Audit",
    "ConvNet",
    "DataError",
    "Dataset",
    "Evaluation",
    "ExhumeError",
    "GradientAt",
    "OptimiserState",
    "Outcome",
    "PublicTraining",
    "RKIPFinite",
    "Reconstruction",
    "RecordError",
    "Refusal",
    "ResNet",
    "Split",
    "Victim",
    "WeightsError",
    "__version__",
    "assess",
    "attacks",
    "audit",
    "distil",
    "evaluate",
    "find_base",
    "find_copies",
    "find_seed",
    "load",
    "load_weights",
    "report",
    "save_figures",
    "train",
    "verdict",
]
