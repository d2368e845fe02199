"""The frozen records that flow through exhume, from data to verdict.

``Dataset -> Victim -> AttackerView -> Reconstruction -> Evaluation``, and one ``Audit`` for all evaluations of
a network. Each of the first five knows how to save itself as one safetensors file
and to load itself back equal. Inputs are always in *pixel units* (the range of ``bounds``); a network sees
``inputs - offset``. Only the methods ``to_model`` and ``to_pixels`` cross between the two.
"""

from exhume.records.audit import Applicability, Assessment, Audit, Price, StartCandidate, StartEvidence, TokenCounts
from exhume.records.calibration import Calibration, Level
from exhume.records.checkpoints import CheckpointContent, read_checkpoint
from exhume.records.comparison import Comparison
from exhume.records.dataset import Dataset, Split
from exhume.records.evaluation import Evaluation
from exhume.records.optimiser_state import OptimiserState
from exhume.records.public_training import PublicTraining
from exhume.records.reconstruction import Outcome, Reconstruction
from exhume.records.victim import Victim
from exhume.records.view import AttackerView
from exhume.records.weights import GradientAt, Weights, check_weights, count_outputs, takes_token_ids

__all__ = [
    "Applicability",
    "Assessment",
    "AttackerView",
    "Audit",
    "Calibration",
    "CheckpointContent",
    "Comparison",
    "Dataset",
    "Evaluation",
    "GradientAt",
    "Level",
    "OptimiserState",
    "Outcome",
    "Price",
    "PublicTraining",
    "Reconstruction",
    "Split",
    "StartCandidate",
    "StartEvidence",
    "TokenCounts",
    "Victim",
    "Weights",
    "check_weights",
    "count_outputs",
    "read_checkpoint",
    "takes_token_ids",
]
