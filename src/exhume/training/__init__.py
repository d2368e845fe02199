"""Training: victims whose start, end and every setting are known."""

from exhume.training.trainer import train

__all__ = ["train"]
