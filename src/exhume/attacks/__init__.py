"""Attacks: each one package, one frozen settings class, one ``run``."""

from exhume.attacks.attack import Attack
from exhume.attacks.bilevel import Bilevel
from exhume.attacks.combined import Combined
from exhume.attacks.gates.gate_certificate import GateCertificate
from exhume.attacks.infinite_width import InfiniteWidth
from exhume.attacks.last_layer import LastLayer
from exhume.attacks.lattice import LevelLattice
from exhume.attacks.restarts import Restarted, run_together
from exhume.attacks.simulated_training import SimulatedTraining
from exhume.attacks.stationarity import Stationarity
from exhume.attacks.stationarity.feature_edges import FeatureEdges
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.weight_difference import WeightDifference

__all__ = [
    "Attack",
    "Bilevel",
    "Combined",
    "FeatureEdges",
    "GateCertificate",
    "InfiniteWidth",
    "LastLayer",
    "LevelLattice",
    "MaxMargin",
    "Restarted",
    "SimulatedTraining",
    "Stationarity",
    "WeightDifference",
    "run_together",
]
