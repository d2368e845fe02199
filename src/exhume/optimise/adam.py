"""Settings of a minimisation by Adam."""

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings

Decay = Literal["cosine", "none"]
LearningRate = PositiveFloat | Tensor
"""Step size of one variable: a number for all runs, or a tensor with one number per run."""
Share = Annotated[float, Field(ge=0, le=1)]

INSPECTION_STEPS = 25
"""Default number of steps between two inspections: rare enough that a GPU hardly waits for quick steps."""


@settings
class Adam:
    """Minimise by Adam (Kingma and Ba 2015)."""

    steps: PositiveInt
    learning_rates: tuple[LearningRate, ...]
    """One per variable."""
    decay: Decay = "cosine"
    """``cosine``: learning rates fall to zero along half a cosine; ``none``: they stay constant."""
    mean_decay: float = 0.9
    square_decay: float = 0.999
    tolerance: NonNegativeFloat = 0.05
    """Values up to this fraction of the objective's scale count as converged."""
    patience: NonNegativeInt = 0
    """Number of steps without a decrease of the lowest value by a thousandth after which a run stops; 0: never stop."""
    inspection_steps: PositiveInt = INSPECTION_STEPS
    """Number of steps between two inspections, which report progress and find the end of a run. An inspection reads
    values back, for which a GPU has to wait; where a step takes long, inspect after each."""
    coarse_share: Share = 0.0
    """Fraction of the steps, the first ones, in coarse precision: a GPU rounds the factors of float32 products to TF32,
    and the coarse objective, where there is one, replaces the exact one. In all other steps TF32 is off."""

    def __post_init__(self) -> None:
        for rate in self.learning_rates:
            if isinstance(rate, Tensor) and not bool((torch.isfinite(rate) & (rate > 0)).all()):
                raise ExhumeError("Adam: learning_rates should be positive, and one of a run is not.")

    @property
    def coarse_steps(self) -> int:
        """Number of steps in coarse precision."""
        return round(self.coarse_share * self.steps)
