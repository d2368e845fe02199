"""Which rows of an embedding moved in training, hence which tokens were trained on.

A token that is never looked up has no gradient: its row stays as it was, or only decays like every other such row, and
its row of a gradient or of an optimiser's first moment is exactly zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from exhume.records import AttackerView

ROUNDING = 1e-5
"""Largest change of a row, relative to its norm, that rounding explains."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingTrace:
    """Which rows of one embedding training touched."""

    layer: str
    evidence: str
    """What shows it: ``weight change``, ``gradient`` or ``optimiser state``."""
    moved: Bool[Tensor, " token"]

    @property
    def is_telling(self) -> bool:
        """Whether some rows moved and others did not; where all moved, as with tied outputs, nothing is told apart."""
        return 0 < int(self.moved.sum()) < len(self.moved)


def trace_tokens(view: AttackerView) -> tuple[EmbeddingTrace, ...]:
    """Return for each embedding which rows moved, by every kind of evidence in the view."""
    return tuple(trace for name in _embedding_weights(view.model) for trace in _trace(view, name))


def _embedding_weights(model: nn.Module) -> list[str]:
    kinds = nn.Embedding | nn.EmbeddingBag
    return [f"{name}.weight" if name else "weight" for name, one in model.named_modules() if isinstance(one, kinds)]


def _trace(view: AttackerView, name: str) -> Iterator[EmbeddingTrace]:
    layer = name.removesuffix(".weight")
    if view.initial is not None:
        moved = rows_that_moved(view.initial[name].double(), view.final[name].double())
        yield EmbeddingTrace(layer=layer, evidence="weight change", moved=moved)
    moment = None if view.optimiser_state is None else view.optimiser_state.first_moment
    for evidence, tensors in (("gradient", view.gradient), ("optimiser state", moment)):
        if tensors is not None and name in tensors:
            yield EmbeddingTrace(layer=layer, evidence=evidence, moved=(tensors[name] != 0).any(dim=1))


def rows_that_moved(
    before: Float[Tensor, "token value"], after: Float[Tensor, "token value"]
) -> Bool[Tensor, " token"]:
    """Return which rows changed by more than the common factor by which weight decay shrinks all of them."""
    sizes = before.square().sum(1).clamp(min=torch.finfo(torch.float64).tiny)
    factors = (before * after).sum(1) / sizes
    # Rows that only decayed share one factor. It is 1 without decay, and otherwise the most frequent one.
    rounded = (factors / ROUNDING).round()
    values, counts = torch.unique(rounded, return_counts=True)
    common = float(values[counts.argmax()]) * ROUNDING
    is_untouched = bool((after == before).all(dim=1).any())
    factor = 1.0 if is_untouched else float(factors[(factors - common).abs() <= ROUNDING].median())
    changes: Tensor = (after - factor * before).norm(dim=1)
    return changes > ROUNDING * sizes.sqrt()
