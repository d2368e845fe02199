"""What a layer's gradient sum leaves of its target, ``S − T`` with ``S = gain·signalᵀ·heard``, and what that does.

Three things are asked of it: its squared size, how it moves what the layer heard, and where it sends the signals.
With fewer candidates than units none of them needs the matrix: Gram matrices of the candidates tell the same for a
fraction of the multiplications, and many runs need no matrix each.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "point *run candidate _"]
"""What candidates show at a layer, at every point."""
Gain = float | Tensor

NEGLIGIBLE = 1e-4
"""What thin factors may leave out of a target, relative to it: a part in 10⁸ of its square, less than float32 tells."""
THIN = 0.25
"""The most columns of thin factors, relative to the shorter side of a matrix; wider ones save little."""
EVEN = 8
"""Thin factors have a multiple of so many columns, where there are as many: GPUs are slow with odd ones."""


class Residual(NamedTuple):
    """What is left of a layer's target."""

    square: Float[Tensor, "*run"]
    motions: Rows
    """How the layer would move what it heard, if its weights were the residual."""
    reaching: Rows
    """What would reach the layer below, if the signals went back through the residual."""


@dataclass(frozen=True)
class LowRank:
    """A matrix as ``left @ right``."""

    left: Float[Tensor, "out rank"]
    right: Float[Tensor, "rank in"]
    square: float
    """The squared size of the matrix."""

    @property
    def shape(self) -> torch.Size:
        """That of the matrix."""
        return torch.Size((len(self.left), self.right.shape[1]))

    def written(self) -> Float[Tensor, "out in"]:
        """Return the matrix."""
        return self.left @ self.right


Target = Float[Tensor, "... out in"] | LowRank
"""A matrix that all runs share, or one of each."""


def compact(matrix: Tensor, rows: int) -> Tensor | LowRank:
    """Return a matrix as thin factors where next to nothing of it is lost and so many rows gain by it.

    The change of a hidden layer has few more directions than there were training inputs; what else float32 weights show
    is their rounding. Its range is found by a product with random columns (Halko, Martinsson and Tropp 2011).

    >>> thin = compact(torch.ones(40, 60), rows=4)
    >>> thin.left.shape, thin.right.shape
    (torch.Size([40, 8]), torch.Size([8, 60]))
    """
    most = int(THIN * min(matrix.shape))
    if matrix.ndim != 2 or most == 0 or not _is_cheaper_by_grams(rows, *matrix.shape, rank=1):
        return matrix
    exact = matrix.double()
    whole = float(exact.square().sum())
    if whole == 0:
        return matrix
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(exact.shape[1], most, generator=generator, dtype=torch.float64).to(exact.device)
    across = torch.linalg.qr(exact @ (exact.mT @ (exact @ probes))).Q  # twice more, so that the strong ones stand out
    inside = across.mT @ exact
    strengths, turns = torch.linalg.eigh(inside @ inside.mT)  # the weakest first
    left_out = whole - float(inside.square().sum()) + strengths.clamp(min=0).cumsum(0)
    dropped = int((left_out <= NEGLIGIBLE**2 * whole).sum())
    if dropped == 0:
        return matrix
    rank = min(most, EVEN * math.ceil((most - dropped) / EVEN))
    kept = turns[:, most - rank :]
    return LowRank((across @ kept).to(matrix.dtype), (kept.mT @ inside).to(matrix.dtype), whole)


def residual(
    signal: Rows,
    heard: Rows,
    gain: Gain,
    target: Target,
    short: torch.dtype,
    metric: Float[Tensor, "... in in"] | None = None,
) -> Residual:
    """Return what the sum ``gain·signalᵀ·heard`` over points and candidates leaves of ``target``, the cheaper way.

    A symmetric ``metric`` says that the directions of what is heard do not count alike: the residual ``R`` then has the
    size ``⟨R, R·metric⟩`` and acts as ``R·metric``. Factors of products with a matrix are rounded to ``short``.
    """
    rows, out, into = heard.shape[0] * heard.shape[-2], signal.shape[-1], heard.shape[-1]
    rank = target.left.shape[1] if isinstance(target, LowRank) else None
    if metric is None and _is_cheaper_by_grams(rows, out, into, rank=rank):
        return _by_grams(signal, heard, gain, target, short)
    matrix = target.written() if isinstance(target, LowRank) else target
    left = outer(signal, heard, gain, short) - matrix
    weighted = left if metric is None else left @ metric
    return Residual(_inner(left, weighted), *acting(signal, heard, weighted, short))


def _inner(one: Tensor, other: Tensor) -> Tensor:
    """⟨one, other⟩, of every run."""
    return torch.dot(one.flatten(), other.flatten()) if one.ndim == 2 else (one * other).sum((-2, -1))


def outer(signal: Rows, heard: Rows, gain: Gain, short: torch.dtype) -> Float[Tensor, "*run out in"]:
    """Return ``gain·Σ signal ⊗ heard`` over points and candidates, of every run."""
    narrow = signal.shape[-1] < heard.shape[-1]  # the gain costs least there
    one, other = (gain * signal if narrow else signal).to(short), (heard if narrow else gain * heard).to(short)
    if signal.ndim == 3:
        return (one.flatten(0, 1).mT @ other.flatten(0, 1)).to(signal)
    total = one[0].mT @ other[0]
    for point in range(1, len(one)):
        total = torch.baddbmm(total, one[point].mT, other[point])
    return total.to(signal)


def acting(signal: Rows, heard: Rows, matrix: Float[Tensor, "... out in"], short: torch.dtype) -> tuple[Rows, Rows]:
    """Return how a matrix in place of a layer's weights moves what it heard, and where it sends the signals.

    All runs share it, or each has its own.
    """
    rounded = matrix.to(short)

    def through(rows: Tensor, factor: Tensor) -> Tensor:
        if factor.ndim == 2 or len(rows) == 1:
            return (rows.to(short) @ factor).to(rows)
        # Point by point: a product of all would copy the matrix of every run for each of them.
        return torch.stack([(at_point.to(short) @ factor).to(rows) for at_point in rows])

    return through(heard, rounded.mT), through(signal, rounded)


def _is_cheaper_by_grams(rows: int, out: int, into: int, *, rank: int | None) -> bool:
    """Compare multiplications: three products with a matrix, or four with Gram matrices and two with the target."""
    with_target = out * into if rank is None else (out + into) * rank
    return 2 * rows * (out + into) + 2 * with_target < 3 * out * into


def _by_grams(signal: Rows, heard: Rows, gain: Gain, target: Target, short: torch.dtype) -> Residual:
    def product(one: Tensor, other: Tensor) -> Tensor:
        return (one.to(short) @ other.to(short)).to(signal)

    size: float | Tensor
    told, listened = signal.to(short), heard.to(short)
    if isinstance(target, LowRank):
        seen, asked = product(listened, target.right.mT), product(told, target.left)
        meets, sent = product(seen, target.left.mT), product(asked, target.right)
        agreement, size = (seen * asked).sum((0, -2, -1)), target.square
    else:
        meets, sent = acting(signal, heard, target, short)
        agreement, size = (signal * meets).sum((0, -2, -1)), target.square().sum((-2, -1))
    told, listened = _joined(told), _joined(listened)
    by_heard, by_signal = gain * product(listened, listened.mT), gain * product(told, told.mT)
    square = (by_heard * by_signal).sum((-2, -1)) - 2 * gain * agreement + size
    motions, reaching = _less(meets, by_heard.to(short), told), _less(sent, by_signal.to(short), listened)
    return Residual(square.clamp(min=0), motions, reaching)


def _less(share: Rows, gram: Tensor, rows: Tensor) -> Rows:
    """Return what the joined ``rows`` send through their Gram matrix, less ``share``; that of many runs is used up."""
    if share.ndim == 3:
        return plus_product(share.flatten(0, 1), gram, rows, times=-1.0).reshape(share.shape)
    for at_point, of_point in zip(share, gram.chunk(len(share), -2), strict=True):
        plus_product(at_point, of_point, rows, times=-1.0, in_place=True)
    return share


def _joined(rows: Rows) -> Tensor:
    """Put the candidates of all points below each other."""
    return rows.flatten(0, 1) if rows.ndim == 3 else rows.movedim(0, 1).flatten(1, 2)


def plus_product(total: Tensor, one: Tensor, other: Tensor, *, times: float = 1.0, in_place: bool = False) -> Tensor:
    """Return ``times·total + one @ other``, on demand in place of ``total``; factors may have fewer bits than it.

    In place saves a pass over the memory of many runs; ``torch.func.vmap`` knows no fast way to do it.
    """
    if one.dtype != total.dtype:
        return torch.add(one @ other, total, alpha=times, out=total if in_place else None)
    if total.ndim == 2:
        return total.addmm_(one, other, beta=times) if in_place else torch.addmm(total, one, other, beta=times)
    return total.baddbmm_(one, other, beta=times) if in_place else torch.baddbmm(total, one, other, beta=times)
