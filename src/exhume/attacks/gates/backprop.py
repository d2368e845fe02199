"""How much of a row back-propagation explains.

The row of an input is a sum of the signals that reach the layer from the outputs. Where all gradients were taken at
nearly the same weights (one gradient, the state of an optimiser), these signals are known once the input is, up to few
numbers: one per output. A mixture of rows, read as the row of one input, lies far outside of their span. In the pool of
40 faces after AdamW, this tells true rows from others with a ROC AUC of 0.93, and the number of zeros with 0.78.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.problem import RowProblem


def explained_share(
    problem: RowProblem, rows: Float[Tensor, "row rank"], codes: Float[Tensor, "row rank"]
) -> Float[Tensor, " row"]:
    """Return the share of each row, as a norm, that lies in the span of the backward signals of its input.

    Args:
        problem: what the rows are rows of.
        rows: the rows.
        codes: their inputs in coordinates of the basis, off where the rows are zero.
    """
    inputs = _scale_like_inputs(problem, codes @ problem.basis.T)
    current = slice(None) if problem.current is None else problem.current.bool()
    signals = problem.signals[-1](inputs @ problem.after[current].T) * problem.informative[current]
    span = torch.linalg.qr(signals.mT).Q
    full = problem.normalise(rows)[:, current]
    inside: Tensor = (span.mT @ full[..., None])[..., 0].norm(dim=1) / full.norm(dim=1)
    return inside


def _scale_like_inputs(problem: RowProblem, inputs: Float[Tensor, "row value"]) -> Float[Tensor, "row value"]:
    """Scale inputs to a constant of 1 (without a bias, to unit mean square), as real inputs are scaled."""
    if problem.has_bias:
        floor = problem.certificate.precision * inputs.norm(dim=1, keepdim=True)
        return inputs / inputs[:, -1:].maximum(floor).clamp(min=1e-300)
    return inputs / inputs.pow(2).mean(dim=1, keepdim=True).sqrt().clamp(min=1e-300)
