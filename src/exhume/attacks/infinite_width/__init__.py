"""InfiniteWidth: recover inputs from the outputs of a very wide network."""

from exhume.attacks.infinite_width.infinite_width import InfiniteWidth

__all__ = ["InfiniteWidth"]
