"""What Adam's second moment tells about the inputs: for every unit, which of them never fired it.

An optimiser of Adam's family keeps a decayed sum of squared gradients. In a dense layer, every gradient of unit ``k``
is a combination of the inputs. So with the basis ``B`` of their span, the squares of input value ``j`` sum to a
quadratic form: ``v_jk = b_jᵀ Q_k b_j``. The first moment gives the basis. The ``n (n + 1) / 2`` unknowns of ``Q_k``
stand against as many equations as an input has values, so a linear system determines ``Q_k`` where ``n²`` is less than
about twice the number of values: up to 74 inputs for images of CIFAR-10.

With ``[x_i; 1] = B c_i``, the form is ``Q_k = Σ_t w_t g_tk g_tkᵀ``, where ``g_tk`` is a combination of those ``c_i``
that fired unit ``k`` in step ``t``. Squares do not cancel, so whatever fired a unit once is in its form for as long as
the optimiser remembers.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.subspace import InputSubspace

SPARE = 1.1
"""Number of equations per unknown from which a fit that succeeds proves its form."""
ROUNDING = 1e-5
"""Largest error of the fit of a unit, relative to its squares, that rounding makes. Measured on CIFAR-10: 4e-7 in the
median and 2e-6 at most after 256 steps of AdamW."""
FITTED = 0.99
"""Least share of the units that the quadratic forms must explain."""
LARGEST_RANK = 100
"""Largest number of inputs; the cost of the linear system grows with its sixth power."""


@dataclass(frozen=True)
class UnitSquares:
    """The sums of squared gradients of all units, as quadratic forms on the span of the inputs."""

    forms: Float[Tensor, "unit rank rank"]
    """``Q_k`` in coordinates of the basis, scaled to a trace of 1; zero for units that never fired."""

    @cached_property
    def axes(self) -> Float[Tensor, "rank rank"]:
        """Coordinates in which the mean of all forms is the identity, so that all inputs are about equally large."""
        values, axes = torch.linalg.eigh(self.forms.mean(dim=0))
        white: Tensor = axes / values.clamp(min=1e-300).sqrt()
        return white


def read_unit_squares(subspace: InputSubspace) -> UnitSquares | None:
    """Return the second moment of a layer as quadratic forms; None where it is absent or they do not explain it.

    Where they do, up to rounding, every gradient of the whole training lies in the span of the inputs.
    """
    squares, rank = subspace.layer.squares, subspace.rank
    unknowns = rank * (rank + 1) // 2
    if squares is None or rank > LARGEST_RANK or subspace.layer.evidence.others:
        return None
    is_live = (squares > 0).any(dim=1)
    if int(is_live.sum()) < SPARE * unknowns:
        return None
    basis, squares = subspace.basis[is_live], squares[is_live]
    row, column = torch.triu_indices(rank, rank, device=basis.device)
    weights = squares.mean(dim=1, keepdim=True).reciprocal()  # rounding is relative
    products = basis[:, row] * basis[:, column] * weights
    fired = (squares > 0).any(dim=0)
    target = squares[:, fired] * weights
    try:
        solution = torch.linalg.lstsq(products, target, driver="gels").solution
    except RuntimeError:  # LinAlgError: values that repeat each other do not determine the forms
        return None
    errors = (products @ solution - target).norm(dim=0) / target.norm(dim=0)
    if not bool((errors <= ROUNDING).double().mean() >= FITTED):  # false for what is not a number
        return None
    halves = torch.where(row == column, 1.0, 0.5)[:, None] * solution
    forms = basis.new_zeros(squares.shape[1], rank, rank)
    known = basis.new_zeros(int(fired.sum()), rank, rank)
    known[:, row, column] = known[:, column, row] = halves.T
    trace = known.diagonal(dim1=1, dim2=2).sum(dim=1)
    is_right = (errors <= ROUNDING) & (trace > 0)
    forms[fired] = torch.where(is_right[:, None, None], known / trace[:, None, None], 0.0)
    return UnitSquares(forms)
