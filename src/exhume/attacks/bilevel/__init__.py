"""Bilevel: inputs that, trained on, give these weights."""

from exhume.attacks.bilevel.bilevel import Bilevel

__all__ = ["Bilevel"]
