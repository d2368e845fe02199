"""GateCertificate: exact, certified recovery from the first layer."""

from exhume.attacks.gates.gate_certificate import GateCertificate

__all__ = ["GateCertificate"]
