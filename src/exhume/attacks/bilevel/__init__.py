"""Bilevel: find inputs on which training gives these weights."""

from exhume.attacks.bilevel.bilevel import Bilevel

__all__ = ["Bilevel"]
