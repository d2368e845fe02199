"""SimulatedTraining: find inputs on which the known recipe makes the same change of the weights."""

from exhume.attacks.simulated_training.simulated_training import SimulatedTraining

__all__ = ["SimulatedTraining"]
