"""What can be seen of a network before any attack runs, looked at once."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from exhume.clues.subspace import InputSubspace, input_subspace
from exhume.core.errors import Refusal
from exhume.records import AttackerView


@dataclass(frozen=True)
class Traits:
    """A view, and what its weights and structure show at a glance."""

    view: AttackerView

    @cached_property
    def _rank(self) -> InputSubspace | Refusal:
        try:
            return input_subspace(self.view)
        except Refusal as reason:
            return reason

    @property
    def subspace(self) -> InputSubspace | None:
        """The span of the training inputs, where the first trained layer shows it."""
        return self._rank if isinstance(self._rank, InputSubspace) else None

    @property
    def no_subspace_because(self) -> str | None:
        """Why no span shows."""
        return str(self._rank) if isinstance(self._rank, Refusal) else None

    @cached_property
    def movement(self) -> float | None:
        """The norm of the weight change relative to that of the start; None without a start."""
        start = self.view.initial
        if start is None:
            return None
        floating = [name for name, weight in self.view.final.items() if weight.is_floating_point()]
        moved = _norm(self.view.final[name].double() - start[name].double() for name in floating)
        return moved / max(_norm(start[name].double() for name in floating), torch.finfo(torch.float64).tiny)

    @property
    def has_batch_norm(self) -> bool:
        """Whether examples of a batch influence each other's gradients."""
        return self._holds(_BatchNorm)

    @property
    def has_dropout(self) -> bool:
        """Whether training saw another network in every step."""
        return self._holds(_DropoutNd)

    @property
    def coarse_weights(self) -> str | None:
        """The name of the type of the final weights, where it has fewer digits than training usually has."""
        for weight in self.view.final.values():
            if weight.is_floating_point() and weight.element_size() < 4:
                return str(weight.dtype).removeprefix("torch.")
        return None

    def known(self, fact: str) -> str:
        """Return what is publicly known of the training under a name, in lower case; empty where nothing is."""
        return str(self.view.training.get(fact, "")).lower()

    def _holds(self, kind: type[nn.Module]) -> bool:
        return any(isinstance(module, kind) for module in self.view.model.modules())


Remark = Callable[[Traits], str | None]
"""Says a sentence about a network, or nothing."""


def _norm(parts: Iterable[torch.Tensor]) -> float:
    squares = sum(float(part.square().sum()) for part in parts)
    return math.sqrt(squares)
