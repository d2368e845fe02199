"""InfiniteWidth: recovery from an infinitely wide network."""

from exhume.attacks.infinite_width.infinite_width import InfiniteWidth

__all__ = ["InfiniteWidth"]
