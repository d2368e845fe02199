"""Reduce the basis of a lattice: find short vectors among all combinations of its vectors with whole numbers.

The Lenstra–Lenstra–Lovász algorithm (1982), by FLINT. Its vectors grow, in the worst case and in practice, by about
2 % per dimension beyond the shortest that there are.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import Refusal

BITS = 28
"""Number of bits with which the shortest direction of a basis is represented. Combinations with large whole numbers
multiply the rounding: with 12 bits, some vectors came out six times longer than the shortest basis has them."""
DEPENDENT = 1e-14
"""Ratio of the extents of a basis in its own directions below which its vectors are dependent, up to rounding."""


def require_flint() -> None:
    """Refuse where python-flint is not installed."""
    try:
        import flint  # noqa: F401
    except ImportError:
        raise Refusal("This attack needs python-flint: pip install python-flint.") from None


def reduce_basis(basis: Float[Tensor, "vector value"]) -> Float[Tensor, "vector vector"]:
    """Return the whole numbers by which the vectors of a basis combine to those of a reduced one.

    >>> vectors = torch.tensor([[1.0, 0.0], [7.1, 1.0]], dtype=torch.float64)
    >>> reduce_basis(vectors)[1].tolist()
    [-7.0, 1.0]
    """
    import flint

    triangle = torch.linalg.qr(basis.T).R.T  # the same lengths and angles, in as many values as there are vectors
    shortest, longest = (float(side) for side in triangle.diagonal().abs().aminmax())
    if not shortest > DEPENDENT * longest:
        raise ValueError("The vectors of a basis must be finite and independent.")
    scaled = triangle * 2.0 ** (BITS - math.floor(math.log2(shortest)))
    whole = flint.fmpz_mat([[round(value) for value in vector] for vector in scaled.tolist()])
    _, combined = whole.lll(True, 0.99)
    rows = [[int(value) for value in row] for row in combined.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def volume(vectors: Float[Tensor, "vector value"]) -> float:
    """Return the volume of the cell that independent vectors span, as the side of a cube with as many dimensions.

    >>> volume(torch.tensor([[4.0, 0.0, 0.0], [0.0, 9.0, 0.0]], dtype=torch.float64))
    6.0
    """
    sides = torch.linalg.qr(vectors.T).R.diagonal().abs()
    return round(math.exp(float(sides.log().mean())), 12)


def nearest_combination(
    vectors: Float[Tensor, "vector value"], basis: Float[Tensor, "part value"]
) -> Float[Tensor, "vector part"]:
    """Return the whole numbers with which vectors of a basis combine to nearly the given ones (Babai 1986).

    >>> basis = torch.tensor([[1.0, 0.0], [5.1, 1.0]], dtype=torch.float64)
    >>> nearest_combination(torch.tensor([[10.2, 2.1]], dtype=torch.float64), basis).tolist()
    [[0.0, 2.0]]
    """
    combined = reduce_basis(basis)
    axes, triangle = torch.linalg.qr((combined @ basis).T)
    left, parts = vectors @ axes, []
    for place in reversed(range(len(basis))):
        times = (left[:, place] / triangle[place, place]).round()
        left = left - times[:, None] * triangle[:, place]
        parts.append(times)
    return torch.stack(parts[::-1], dim=1) @ combined
