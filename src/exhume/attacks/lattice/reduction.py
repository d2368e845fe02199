"""Reduce the basis of a lattice: find short vectors among all combinations of its vectors with whole numbers.

The Lenstra–Lenstra–Lovász algorithm (1982), by FLINT, in overlapping windows of the basis: windows are small enough for
double precision, and what one gains the next one carries on. Its vectors grow by about 2 % per dimension beyond the
shortest that there are. Block reduction (Schnorr and Euchner 1994) goes on from there: the shortest combination of each
block of neighbouring vectors, up to the vectors before the block, takes its first place. With blocks of 24 vectors grow
by little more than 1 % per dimension.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import Refusal

BITS = 28
"""Number of bits with which the shortest direction of a window is represented. Combinations with large whole numbers
multiply the rounding: with 12 bits, some vectors came out six times longer than the shortest basis has them."""
DEPENDENT = 1e-14
"""Ratio of the extents of a basis in its own directions below which its vectors are dependent, up to rounding."""
LARGEST_WHOLE = 2.0**50
"""Whole numbers below this, and their sums, are exact in double precision."""
WINDOW = 64
"""Number of vectors that are reduced at once; the next window begins at half of it."""
BLOCK = 24
"""Number of vectors in a block."""
BEAM = 64
"""Number of combinations of a block that are followed at a time; 256 find vectors that are shorter by 0.2 %."""
SHORTER = 0.99
"""Squared length of a combination, relative to the vector whose place it takes, from which on the exchange is worth
it."""
PROGRESS = 0.02
"""Least decrease of the potential per vector for which reduction goes on, in logarithms of a length."""
MOST_SWEEPS = 100
"""Largest number of sweeps through all windows."""
MOST_EXCHANGES = 8
"""Largest number of exchanges in all blocks of a window at a time."""

IsEnough = Callable[[Float[Tensor, "vector vector"]], bool]
"""Returns whether these combinations of the vectors of a basis are reduced enough; may raise to stop."""


def require_flint() -> None:
    """Refuse where python-flint is not installed."""
    try:
        import flint  # noqa: F401
    except ImportError:
        raise Refusal("This attack needs python-flint: pip install python-flint.") from None


def reduce_basis(
    basis: Float[Tensor, "vector value"],
    *,
    blocks: bool = False,
    sweeps: int | None = None,
    is_enough: IsEnough = lambda combined: False,
) -> Float[Tensor, "vector vector"]:
    """Return the whole numbers by which the vectors of a basis combine to those of a reduced one.

    >>> vectors = torch.tensor([[1.0, 0.0], [7.1, 1.0]], dtype=torch.float64)
    >>> reduce_basis(vectors)[1].tolist()
    [-7.0, 1.0]

    Args:
        basis: independent vectors.
        blocks: whether to go on with blocks.
        sweeps: largest number of sweeps through all blocks; None: until nothing changes much.
        is_enough: asked after every sweep whether to end.
    """
    vectors = _triangle(basis)
    shortest, longest = (float(side) for side in vectors.diagonal().abs().aminmax())
    if not shortest > DEPENDENT * longest:
        raise ValueError("The vectors of a basis must be finite and independent.")
    combined = torch.eye(len(basis), dtype=torch.float64)
    _shorten(vectors, combined)
    _sweep(vectors, combined, _lll, MOST_SWEEPS, is_enough)
    if blocks and not is_enough(combined):
        _sweep(vectors, combined, _reduce_blocks, MOST_SWEEPS if sweeps is None else sweeps, is_enough)
    if not float(combined.abs().max()) < LARGEST_WHOLE:
        raise ValueError("The vectors of a basis are too uneven to be combined with whole numbers exactly.")
    return combined


def _triangle(vectors: Float[Tensor, "vector value"]) -> Float[Tensor, "vector vector"]:
    """Return vectors with the same lengths and angles, each with no more values than its place."""
    triangle: Tensor = torch.linalg.qr(vectors.T).R.T.contiguous()
    return triangle


def _potential(vectors: Float[Tensor, "vector value"]) -> float:
    """Return the sum of the logarithms of the volumes of the first vector, the first two, and so on."""
    sides = _triangle(vectors).diagonal().abs().log()
    return float((sides * torch.arange(len(sides), 0, -1)).sum())


def _shorten(vectors: Float[Tensor, "vector value"], combined: Float[Tensor, "vector vector"]) -> None:
    """Subtract from each vector those before it, a whole number of times, in place."""
    triangle = _triangle(vectors)
    for place in range(len(vectors) - 2, -1, -1):
        times = (triangle[place + 1 :, place] / triangle[place, place]).round()[:, None]
        if bool(times.any()):
            for matrix in (triangle, vectors, combined):
                matrix[place + 1 :] -= times * matrix[place]


def _sweep(
    vectors: Float[Tensor, "vector value"],
    combined: Float[Tensor, "vector vector"],
    reduce_window: Callable[[Float[Tensor, "vector vector"]], Float[Tensor, "vector vector"]],
    sweeps: int,
    is_enough: IsEnough,
) -> None:
    """Reduce overlapping windows of a basis, in place, until none of them changes much."""
    count, before = len(vectors), math.inf
    starts = sorted({*range(0, max(1, count - WINDOW), WINDOW // 2), max(0, count - WINDOW)})
    for sweep in range(sweeps):
        for start in starts[:: -1 if sweep % 2 else 1]:
            window = slice(start, min(start + WINDOW, count))
            times = reduce_window(_triangle(vectors)[window, window])
            for matrix in (vectors, combined):
                matrix[window] = times @ matrix[window]
            _shorten(vectors, combined)
        after = _potential(vectors)
        if len(starts) == 1 or after > before - PROGRESS * count or is_enough(combined):
            break
        before = after


def _lll(triangle: Float[Tensor, "vector vector"]) -> Float[Tensor, "vector vector"]:
    """Return the combinations of vectors to a reduced basis."""
    import flint

    shortest = float(triangle.diagonal().abs().min())
    scaled = triangle * 2.0 ** (BITS - math.floor(math.log2(shortest)))
    whole = flint.fmpz_mat([[round(value) for value in vector] for vector in scaled.tolist()])
    _, combined = whole.lll(True, 0.99)
    return torch.tensor([[int(value) for value in row] for row in combined.tolist()], dtype=torch.float64)


def _reduce_blocks(triangle: Float[Tensor, "vector vector"]) -> Float[Tensor, "vector vector"]:
    """Return the combinations of vectors to a basis with short combinations of each block in its first place."""
    combined = torch.eye(len(triangle), dtype=torch.float64)
    for _ in range(MOST_EXCHANGES):
        exchanged = _exchange(_triangle(combined @ triangle))
        if exchanged is None:
            break
        combined = exchanged @ combined
        combined = _lll(_triangle(combined @ triangle)) @ combined
    return combined


def _exchange(triangle: Float[Tensor, "vector vector"]) -> Float[Tensor, "vector vector"] | None:
    """Return combinations that put the shortest one of some blocks in its first place; None where none is shorter."""
    count = len(triangle)
    size = min(BLOCK, count)
    blocks = torch.stack([triangle[start : start + size, start : start + size] for start in range(count - size + 1)])
    times, squares = _shortest(blocks)
    gains = squares / blocks[:, 0, 0].square()
    taken, combined = torch.zeros(count, dtype=torch.bool), torch.eye(count, dtype=torch.float64)
    for start in gains.argsort().tolist():
        if not float(gains[start]) < SHORTER:
            break
        # A vector that it contains once can be exchanged for it.
        once = (times[start].abs() == 1).nonzero()[:, 0].tolist()
        used = slice(start, start + int(times[start].nonzero()[-1]) + 1)
        if not once or bool(taken[used].any()):
            continue
        taken[used] = True
        changed = slice(start, start + once[-1] + 1)
        first = torch.zeros(1, count, dtype=torch.float64)
        first[0, start : start + size] = times[start]
        combined[changed] = torch.cat([first, combined[changed][:-1]])
    return combined if bool(taken.any()) else None


def _shortest(
    blocks: Float[Tensor, "block vector vector"],
) -> tuple[Float[Tensor, "block vector"], Float[Tensor, " block"]]:
    """Return the shortest combinations of the vectors of blocks that were found, and their squared lengths.

    From the last direction to the first: what later vectors leave in a direction is rounded by its own vector to the
    three nearest values, and the shortest combinations so far are followed.
    """
    count, size, _ = blocks.shape
    times, squares = blocks.new_zeros(count, 1, size), blocks.new_zeros(count, 1)
    steps = torch.tensor([0.0, -1.0, 1.0], dtype=torch.float64)
    for place in reversed(range(size)):
        side = blocks[:, place, place, None]
        centre = -torch.einsum("bkv,bv->bk", times, blocks[:, :, place]) / side
        values = centre.round()[:, :, None] + steps
        more = squares[:, :, None] + (side[:, :, None] * (values - centre[:, :, None])).square()
        # A combination and its negative are the same: the last vector that takes part does so a positive number of
        # times.
        is_empty = (times == 0).all(dim=2)[:, :, None]
        more = torch.where(is_empty & (values < 0), torch.inf, more)
        if place == 0:
            more = torch.where(is_empty & (values == 0), torch.inf, more)
        kept = min(BEAM, more[0].numel())
        squares, chosen = more.flatten(1).topk(kept, dim=1, largest=False)
        parent = (chosen // len(steps))[:, :, None].expand(-1, -1, size)
        times = times.gather(1, parent).clone()
        times[:, :, place] = values.flatten(1).gather(1, chosen)
    best = squares.argmin(dim=1)
    every = torch.arange(count)
    return times[every, best], squares[every, best]


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
