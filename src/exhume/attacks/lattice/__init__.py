"""Whole numbers in the span of all inputs: recover 8-bit images whatever the activation is."""

from exhume.attacks.lattice.level_lattice import LevelLattice

__all__ = ["LevelLattice"]
