"""Attacks: each one file, one frozen dataclass, one ``run``."""

from exhume.attacks.attack import Attack
from exhume.attacks.gate_certificate import GateCertificate

__all__ = ["Attack", "GateCertificate"]
