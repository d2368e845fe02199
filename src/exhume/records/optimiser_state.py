"""OptimiserState: the part of an optimiser's memory that is a decayed sum of gradients."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from exhume.records.record import Record
from exhume.records.weights import Weights


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimiserState(Record):
    """The first moment that an optimiser keeps of each parameter, and what its file states about the training.

    SGD's ``momentum_buffer`` and Adam's ``exp_avg`` are sums of the last gradients with geometrically falling weights.
    Each is therefore a gradient of the data of the last steps.
    """

    first_moment: Weights
    """The sum of gradients of each parameter, by the parameter's name; frozen parameters are absent."""
    slot: str | None = None
    """The name under which the optimiser stores the sum, such as ``exp_avg``."""
    optimiser: str | None = None
    """The name of the optimiser where the file tells, such as ``AdamW``."""
    steps: int | None = None
    """The number of steps taken."""
    lr: float | None = None
    """The learning rate at the last step."""
    decay: float | None = None
    """Weight of the sum of the previous step: ``β1`` or the momentum."""
    weight_decay: float | None = None

    def describe(self) -> dict[str, Any]:
        """Return everything but the tensors, as JSON values."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "first_moment"}
        return {name: value for name, value in facts.items() if value is not None}

    def with_moment(self, first_moment: Weights) -> "OptimiserState":
        """Return the same state with other tensors."""
        return OptimiserState(first_moment=first_moment, **self.describe())


def read_state(state: OptimiserState | Mapping[str, Tensor]) -> OptimiserState:
    """Return a state that users may give as a mapping from parameter names to first moments."""
    return state if isinstance(state, OptimiserState) else OptimiserState(first_moment=state)
