"""The frozen records that flow through exhume, from data to verdict.

``Dataset -> Victim -> AttackerView -> Reconstruction -> Audit``, and one ``Dossier`` for all audits of a network. Each
of the five knows how to save itself as one safetensors file
and to load itself back equal. Inputs are always in *pixel units* (the range of ``bounds``); a network sees
``inputs - offset``. Only the methods ``to_model`` and ``to_pixels`` cross between the two.
"""

from exhume.records.audit import Audit, Calibration, Level
from exhume.records.comparison import Comparison
from exhume.records.dataset import Dataset, Split
from exhume.records.dossier import Applicability, Assessment, Dossier, Price, StartCandidate, StartEvidence
from exhume.records.network import AttackerView, Victim, Weights, check_weights, count_outputs
from exhume.records.reconstruction import Outcome, Reconstruction

__all__ = [
    "Applicability",
    "Assessment",
    "AttackerView",
    "Audit",
    "Calibration",
    "Comparison",
    "Dataset",
    "Dossier",
    "Level",
    "Outcome",
    "Price",
    "Reconstruction",
    "Split",
    "StartCandidate",
    "StartEvidence",
    "Victim",
    "Weights",
    "check_weights",
    "count_outputs",
]
