"""The last linear layer alone: its features from one gradient."""

from exhume.attacks.last_layer.last_layer import LastLayer

__all__ = ["LastLayer"]
