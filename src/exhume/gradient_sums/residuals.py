"""The residual ``R = S − T`` of one layer's gradient sum ``S = gain·signalsᵀ·inputs`` against its target ``T``.

Three things are needed of it: its squared norm, its product with the layer's inputs, and its product with the signals.
With fewer candidates than units none of them needs the matrix: Gram matrices of the candidates give the same result
with a fraction of the multiplications, and many runs need no matrix each.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "point *run candidate _"]
"""Values of candidates at a layer, at every point."""

NEGLIGIBLE = 1e-4
"""Norm that low-rank factors may leave out of a target, relative to its norm. This is 10⁻⁸ of its square, below the
resolution of float32."""
MAX_RANK_SHARE = 0.25
"""Most columns of low-rank factors, relative to the shorter side of the matrix; wider factors save little."""
RANK_MULTIPLE = 8
"""Low-rank factors have a multiple of so many columns, since GPUs are slow with other widths."""


class Residual(NamedTuple):
    """The residual of a layer, squared and applied."""

    square: Float[Tensor, "*run"]
    forward: Rows
    """``inputs·Rᵀ``: the layer's outputs if its weights were the residual."""
    backward: Rows
    """``signals·R``: the signals that would reach the layer below."""


@dataclass(frozen=True)
class LowRank:
    """A matrix as ``left @ right``."""

    left: Float[Tensor, "out rank"]
    right: Float[Tensor, "rank in"]
    square: float
    """The squared norm of the matrix."""

    @property
    def shape(self) -> torch.Size:
        """The shape of the matrix."""
        return torch.Size((len(self.left), self.right.shape[1]))

    def to_matrix(self) -> Float[Tensor, "out in"]:
        """Return the matrix."""
        return self.left @ self.right

    def times(self, factor: float) -> "LowRank":
        """Return the factors of a multiple of the matrix."""
        return LowRank(factor * self.left, self.right, factor**2 * self.square)


Target = Float[Tensor, "... out in"] | LowRank
"""A matrix that all runs share, or one per run."""


def compact(matrix: Tensor, rows: int) -> Tensor | LowRank:
    """Return a matrix as low-rank factors if they are accurate and save multiplications with ``rows`` rows.

    The change of a hidden layer has few more directions than there were training inputs; the rest of float32 weights is
    rounding. Its range is found by a product with random columns (Halko, Martinsson and Tropp 2011).

    >>> thin = compact(torch.ones(40, 60), rows=4)
    >>> thin.left.shape, thin.right.shape
    (torch.Size([40, 8]), torch.Size([8, 60]))
    """
    most = int(MAX_RANK_SHARE * min(matrix.shape))
    if matrix.ndim != 2 or most == 0 or not _is_cheaper_by_grams(rows, *matrix.shape, rank=1):
        return matrix
    exact = matrix.double()
    whole = float(exact.square().sum())
    if whole == 0:
        return matrix
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(exact.shape[1], most, generator=generator, dtype=torch.float64).to(exact.device)
    # One power iteration separates the strong directions from the rounding.
    across = torch.linalg.qr(exact @ (exact.mT @ (exact @ probes))).Q
    inside = across.mT @ exact
    strengths, rotations = torch.linalg.eigh(inside @ inside.mT)  # the weakest first
    left_out = whole - float(inside.square().sum()) + strengths.clamp(min=0).cumsum(0)
    dropped = int((left_out <= NEGLIGIBLE**2 * whole).sum())
    if dropped == 0:
        return matrix
    rank = min(most, RANK_MULTIPLE * math.ceil((most - dropped) / RANK_MULTIPLE))
    kept = rotations[:, most - rank :]
    return LowRank((across @ kept).to(matrix.dtype), (kept.mT @ inside).to(matrix.dtype), whole)


def layer_residual(
    signals: Rows,
    inputs: Rows,
    gain: float,
    target: Target,
    factor_dtype: torch.dtype,
    metric: Float[Tensor, "... in in"] | None = None,
    known: Float[Tensor, "row out"] | None = None,
) -> Residual:
    """Return the residual of ``gain·signalsᵀ·inputs``, summed over points and candidates, in the cheaper of two ways.

    A symmetric ``metric`` weights the directions of the layer's inputs: the residual ``R`` then has the squared norm
    ``⟨R, R·metric⟩`` and is applied as ``R·metric``. What orthonormal ``known`` rows span is no part of the residual.
    Factors of products are rounded to ``factor_dtype``.
    """
    rows, out, into = inputs.shape[0] * inputs.shape[-2], signals.shape[-1], inputs.shape[-1]
    rank = target.left.shape[1] if isinstance(target, LowRank) else None
    if metric is None and known is None and _is_cheaper_by_grams(rows, out, into, rank=rank):
        return _residual_by_grams(signals, inputs, gain, target, factor_dtype)
    matrix = target.to_matrix() if isinstance(target, LowRank) else target
    residual = leave_out(known, sum_outer_products(signals, inputs, gain, factor_dtype, less=matrix))
    weighted = residual if metric is None else (residual.to(metric) @ metric).to(residual)
    return Residual(_inner_product(residual, weighted), *apply_matrix(signals, inputs, weighted, factor_dtype))


def leave_out(known: Float[Tensor, "row out"] | None, residual: Tensor) -> Tensor:
    """Return a residual, of a matrix or a vector, without its part in the span of orthonormal ``known`` rows."""
    return residual if known is None else residual - known.mT @ (known @ residual)


def _inner_product(one: Tensor, other: Tensor) -> Tensor:
    """Return ``⟨one, other⟩`` per run, at least in float32."""
    if one is other:  # in one pass over the memory
        norm: Tensor = torch.linalg.vector_norm(one, dim=(-2, -1), dtype=torch.promote_types(one.dtype, torch.float32))
        return norm.square()
    wide = torch.promote_types(one.dtype, torch.float32)
    one, other = one.to(wide), other.to(wide)
    return torch.dot(one.flatten(), other.flatten()) if one.ndim == 2 else _total(one * other, (-2, -1))


def sum_outer_products(
    signals: Rows,
    inputs: Rows,
    gain: float,
    factor_dtype: torch.dtype,
    *,
    less: Float[Tensor, "... out in"] | None = None,
) -> Float[Tensor, "*run out in"]:
    """Return ``gain·Σ signal ⊗ input`` over points and candidates, per run, less a matrix where one is given."""
    if gain != 1.0:  # which costs least on the narrower factor
        is_narrow = signals.shape[-1] < inputs.shape[-1]
        signals, inputs = (gain * signals, inputs) if is_narrow else (signals, gain * inputs)
    one, other = signals.to(factor_dtype), inputs.to(factor_dtype)
    pairs = [(one.flatten(0, 1), other.flatten(0, 1))] if one.ndim == 3 else list(zip(one, other, strict=True))
    first = (pairs[0][0].mT, pairs[0][1])
    total = first[0] @ first[1] if less is None else add_product(less.to(signals), *first, times=-1.0)
    for left, right in pairs[1:]:
        total = add_product(total, left.mT, right)
    return total.to(signals)


def apply_matrix(
    signals: Rows, inputs: Rows, matrix: Float[Tensor, "... out in"], factor_dtype: torch.dtype
) -> tuple[Rows, Rows]:
    """Return ``inputs·matrixᵀ`` and ``signals·matrix``; runs share the matrix, or each has its own."""
    rounded = matrix.to(factor_dtype)

    def product(rows: Tensor, factor: Tensor) -> Tensor:
        if factor.ndim == 2 or len(rows) == 1:
            return (rows.to(factor_dtype) @ factor).to(rows)
        # Point by point: one product for all points would copy the matrix of every run for each of them.
        return torch.stack([(at_point.to(factor_dtype) @ factor).to(rows) for at_point in rows])

    return product(inputs, rounded.mT), product(signals, rounded)


def _is_cheaper_by_grams(rows: int, out: int, into: int, *, rank: int | None) -> bool:
    """Compare multiplications: three products with a matrix, or four with Gram matrices and two with the target."""
    with_target = out * into if rank is None else (out + into) * rank
    return 2 * rows * (out + into) + 2 * with_target < 3 * out * into


def _residual_by_grams(signals: Rows, inputs: Rows, gain: float, target: Target, factor_dtype: torch.dtype) -> Residual:
    """Return the residual without writing the sum: ``⟨S, S⟩`` and its products follow from Gram matrices."""

    def product(one: Tensor, other: Tensor) -> Tensor:
        return (one.to(factor_dtype) @ other.to(factor_dtype)).to(signals)

    target_square: float | Tensor
    signal_factor, input_factor = signals.to(factor_dtype), inputs.to(factor_dtype)
    if isinstance(target, LowRank):
        inputs_right, signals_left = product(input_factor, target.right.mT), product(signal_factor, target.left)
        forward, backward = product(inputs_right, target.left.mT), product(signals_left, target.right)
        agreement, target_square = _total(inputs_right * signals_left, (0, -2, -1)), target.square
    else:
        forward, backward = apply_matrix(signals, inputs, target, factor_dtype)
        agreement, target_square = _total(signals * forward, (0, -2, -1)), target.square().sum((-2, -1))
    signal_rows, input_rows = _stack_points(signal_factor), _stack_points(input_factor)
    input_gram = gain * product(input_rows, input_rows.mT)
    signal_gram = gain * product(signal_rows, signal_rows.mT)
    square = _total(input_gram * signal_gram, (-2, -1)) - 2 * gain * agreement + target_square
    return Residual(
        square.clamp(min=0),
        _subtract_from_product(forward, input_gram.to(factor_dtype), signal_rows),
        _subtract_from_product(backward, signal_gram.to(factor_dtype), input_rows),
    )


def _subtract_from_product(share: Rows, gram: Tensor, rows: Tensor) -> Rows:
    """Return ``gram @ rows − share``, where rows of all points are stacked; with many runs ``share`` is overwritten."""
    if share.ndim == 3:
        return add_product(share.flatten(0, 1), gram, rows, times=-1.0).reshape(share.shape)
    for at_point, of_point in zip(share, gram.chunk(len(share), -2), strict=True):
        add_product(at_point, of_point, rows, times=-1.0, in_place=True)
    return share


def _total(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the sum, at least in float32."""
    return values.sum(dims, dtype=torch.promote_types(values.dtype, torch.float32))


def _stack_points(rows: Rows) -> Tensor:
    """Stack the candidates of all points along one dimension."""
    return rows.flatten(0, 1) if rows.ndim == 3 else rows.movedim(0, 1).flatten(1, 2)


def add_product(total: Tensor, one: Tensor, other: Tensor, *, times: float = 1.0, in_place: bool = False) -> Tensor:
    """Return ``times·total + one @ other``, on demand in place of ``total``; factors may have a shorter dtype.

    In place saves a pass over the memory of many runs.
    """
    if one.dtype != total.dtype:
        return torch.add(one @ other, total, alpha=times, out=total if in_place else None)
    if one.ndim == 2:
        return total.addmm_(one, other, beta=times) if in_place else torch.addmm(total, one, other, beta=times)
    return total.baddbmm_(one, other, beta=times) if in_place else torch.baddbmm(total, one, other, beta=times)
