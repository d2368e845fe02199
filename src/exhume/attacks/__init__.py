"""Attacks: each one file, one frozen dataclass, one ``run``."""

from exhume.attacks.attack import Attack
from exhume.attacks.gate_certificate import GateCertificate
from exhume.attacks.restarts import Restarted
from exhume.attacks.weight_difference import WeightDifference

__all__ = ["Attack", "GateCertificate", "Restarted", "WeightDifference"]
