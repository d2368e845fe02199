"""exhume: can somebody dig the training data out of these weights?

Recover training data from a network, prove which recoveries are real, and measure everything against data that nobody
trained on::

    data = exhume.load("faces", size=40)
    victim = exhume.train(data, model=exhume.MLP(width=1024, depth=2))
    found = exhume.attacks.GateCertificate().run(victim.view(), seed=0)
    audit = exhume.evaluate(found, data, victim=victim)
    exhume.report(audit, "report.html")
"""

from exhume import attacks
from exhume.auditing import assess, audit, find_base, find_seed
from exhume.core.errors import DataError, ExhumeError, RecordError, Refusal, WeightsError
from exhume.core.weight_files import load_weights
from exhume.data import load
from exhume.distillation import KIP, RKIP, RKIPFinite, distil
from exhume.evaluation import evaluate, find_copies, verdict
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Audit, Dataset, Evaluation, Outcome, Reconstruction, Split, Victim
from exhume.report import report, save_figures
from exhume.training import train
from exhume.version import __version__

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
    "Outcome",
    "RKIPFinite",
    "Reconstruction",
    "RecordError",
    "Refusal",
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
