"""Find all vectors of whole numbers in the span of the inputs.

Every 8-bit image is a vector of whole numbers, and so is every sum of images, each taken a whole number of times. These
form a lattice with as many dimensions as there are inputs. The span of other inputs contains no such vectors. They are
found in a few of the values first: all whole numbers there are measured by how far they are from the span, relative to
noise, and how large their coefficients are. By this measure vectors of the lattice are short and all others are long.
The other values follow, and must be whole too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import scipy.linalg
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.lattice.reduction import reduce_basis
from exhume.attacks.levels import STEPS
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.records import AttackerView

WHOLE = 0.1
"""Largest distance of all values of a vector from whole numbers, of which chance is certain not to make thousands."""
LEAST_NOISE = 1e-6
"""Least noise that is reckoned with; less of it helps no further."""
NEEDED_CONTRAST = 0.03
"""Least :func:`contrast` with which the lattice is looked for, by blocks. It was found at 0.033 and 0.037, with 100
inputs after Adam; these take one to six minutes."""
QUICK_CONTRAST = 0.045
"""Least contrast at which LLL alone finds the lattice, within seconds. The vectors that it leaves fall by 0.043 in
logarithm per dimension. The lattice was found at 0.045 and more in eleven networks with 40 to 56 inputs, and not at
0.036 and 0.037."""
MOST_INPUTS = 130
"""Number of inputs beyond which the lattice is not looked for: with the noise of float32, 128 and 160 images have a
contrast of 0.030 and 0.022 in one gradient."""
NEARLY = 0.8
"""Fraction of the largest contrast from which on blocks are reduced."""
SWEEPS = 16
"""Number of sweeps through all blocks before more values are used."""
AMPLE_CONTRAST = 0.065
"""Contrast from which on reduction shows some vector of the lattice if there are any; where it shows none, inputs are
no 8-bit images."""
USUAL_SIDE = -1.4
"""Logarithm of the side of the lattice's cell, as :func:`~exhume.attacks.lattice.reduction.volume` measures it, beyond
that of an input whose coefficients are usual: inputs are shorter, and similar to each other."""
NUMBERS_OF_VALUES = (2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Numbers of values per input among which the one with the largest contrast is used at most. More values add equations,
and reduction loses by its dimension: 2.5 to 3 are best where noise is far below a level, more where it is not."""
MOST_VALUES = 400
"""Largest number of values that are used: reduction in more dimensions takes hours."""
SPARE_VALUES = 8
"""Number of values beyond that, which matters for few inputs."""
VALUES_AT_ONCE = 6
"""Part of the number of inputs by which the number of values grows between two reductions."""


@dataclass(frozen=True, kw_only=True)
class LevelSpan:
    """The span of all inputs in units of levels; the last value is the constant, which is 1 for an input."""

    vectors: Float[Tensor, "value rank"]
    """Vectors that span the inputs. A combination with coefficients ``a`` has noise of :attr:`noise` times ``|a|``."""
    noise: float

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.vectors.shape[1]

    @cached_property
    def axes(self) -> tuple[Float[Tensor, "value rank"], Float[Tensor, " rank"]]:
        """Orthonormal vectors of the span, and its extent along each."""
        left, strengths, _ = torch.linalg.svd(self.vectors, full_matrices=False)
        return left, strengths

    @cached_property
    def usual_coefficient(self) -> float:
        """The size of the coefficients of an input, roughly: as if it were equally large in all directions."""
        strengths = self.axes[1]
        return 0.5 * STEPS * math.sqrt(len(self.vectors)) / math.exp(float(strengths.log().mean()))

    @property
    def noise_of_input(self) -> float:
        """The noise in a value of an input, roughly."""
        return max(self.noise * self.usual_coefficient, LEAST_NOISE)

    def coefficients(
        self, used: Int[Tensor, " used"], vectors: Float[Tensor, "vector used"]
    ) -> Float[Tensor, "rank vector"]:
        """Return the coefficients that explain some values of vectors best."""
        solution: Tensor = torch.linalg.lstsq(self.vectors[used], vectors.T).solution
        return solution


@dataclass(frozen=True, kw_only=True)
class WholeVectors:
    """A basis of the lattice of whole numbers in a span."""

    vectors: Float[Tensor, "vector value"]
    used: Int[Tensor, " used"]
    """The values that they were found in; all others prove them."""


def span_in_levels(view: AttackerView, subspace: InputSubspace) -> LevelSpan:
    """Return the span of the inputs in units of levels.

    Raises:
        Refusal: when the range of inputs is unknown, or the layer does not read them or has no bias.
    """
    layer = subspace.layer
    if view.bounds is None:
        raise Refusal("This attack needs the range of the inputs (bounds): it looks for the levels of 8-bit images.")
    if not (layer.reads_input and layer.has_bias):
        raise Refusal(f"This attack needs a first layer with a bias that reads the input, and {layer.name!r} is none.")
    low, high = view.bounds
    vectors = (subspace.basis * subspace.strengths).double().cpu()
    lowest = view.to_model(torch.full((1, view.input_size), low, dtype=torch.float64)).flatten().cpu()
    per_level = STEPS / (high - low)
    values = (vectors[:-1] - lowest[:, None] * vectors[-1]) * per_level
    # The constant takes part in every value, with its own noise.
    noise = subspace.noise * per_level * math.sqrt(1 + float(lowest.square().max()))
    return LevelSpan(vectors=torch.cat([values, vectors[-1:]]), noise=noise)


def find_whole_vectors(span: LevelSpan, tick: Callable[[int, int], None] = lambda done, total: None) -> WholeVectors:
    """Find the lattice of whole numbers in a span; empty where there is none, and with fewer dimensions where it fails.

    Args:
        span: the span of all inputs.
        tick: called with the number of values so far and the largest number; may raise to stop.
    """
    rank, order = span.rank, _choose_values(span)
    largest, most = _best_number(span, order)
    order = order[:most]
    whole, step = torch.eye(rank, dtype=torch.float64), max(4, rank // VALUES_AT_ONCE)
    predicted, is_whole, used = span.vectors.T, torch.zeros(rank, dtype=torch.bool), order[:rank]
    for count in [*range(rank, len(order), step), len(order)]:
        tick(count, len(order))
        used, present = order[:count], contrast(span, order[:count])
        before = _extend(span, whole, used)

        def is_found(combined: Tensor, before: Tensor = before, used: Tensor = used) -> bool:
            tick(len(used), len(order))
            return bool(_are_whole(_predict(span, (combined @ before).round(), used)).all())

        try:
            combined = reduce_basis(
                before @ _metric(span, used),
                blocks=largest < QUICK_CONTRAST and present >= NEARLY * largest,
                sweeps=None if count == len(order) else SWEEPS,
                is_enough=is_found,
            )
        except ValueError:  # evidence that is too uneven for double precision
            break
        whole = (combined @ before).round()
        predicted = _predict(span, whole, used)
        is_whole = _are_whole(predicted)
        is_hopeless = count >= 2 * rank + SPARE_VALUES and present > AMPLE_CONTRAST
        if bool(is_whole.all()) or (is_hopeless and not bool(is_whole.any())):
            break
    return WholeVectors(vectors=predicted[is_whole].round(), used=used)


def _predict(
    span: LevelSpan, whole: Float[Tensor, "vector used"], used: Int[Tensor, " used"]
) -> Float[Tensor, "rank value"]:
    """Return all values of the first vectors, as many as the span has dimensions, by those that are used."""
    return (span.vectors @ span.coefficients(used, whole[: span.rank])).T


def largest_contrast(span: LevelSpan) -> float:
    """Return the largest :func:`contrast` for any number of values that are used; none for too many inputs."""
    if span.rank > MOST_INPUTS:
        return -math.inf
    return _best_number(span, _choose_values(span))[0]


def _best_number(span: LevelSpan, order: Int[Tensor, " value"]) -> tuple[float, int]:
    """Return the largest contrast for a number of values that are used, and this number."""
    numbers = {min(int(times * span.rank) + SPARE_VALUES, len(order)) for times in NUMBERS_OF_VALUES}
    return max((contrast(span, order[:number]), number) for number in sorted(numbers))


def contrast(span: LevelSpan, used: Int[Tensor, " used"]) -> float:
    """Estimate how much longer other whole numbers are than those of the lattice, as a logarithm per dimension.

    The side of the cell of all whole numbers follows from their measure. The lattice takes a part of its volume, and
    the rest is left to the other dimensions.
    """
    rank, others = span.rank, len(used) - span.rank
    if others <= 0:
        return -math.inf
    own = 0.5 * math.log(rank) + USUAL_SIDE
    every = -0.5 * float(_variances(span, torch.linalg.svdvals(_usual_values(span, used)), len(used)).log().sum())
    return 2 * ((every - rank * own) / others - own) / len(used)


def _are_whole(vectors: Float[Tensor, "vector value"]) -> Bool[Tensor, " vector"]:
    """Return which vectors consist of whole numbers.

    An error of the constant moves all values, the brightest by 255 times as much. Inputs with fewer levels than 256
    have combinations that are whole but for it: 16 times 16/255 is nearly 1.
    """
    off = (vectors - vectors.round()).abs()
    is_whole: Tensor = (off[:, :-1] <= WHOLE).all(dim=1) & (off[:, -1] <= WHOLE / STEPS)
    return is_whole


def _choose_values(span: LevelSpan) -> Int[Tensor, " value"]:
    """Return the constant and then the values that determine vectors of the span best, in groups as large as its rank.

    Values that are the same in all inputs determine nothing and come last.
    """
    left, chosen = span.axes[0], [len(span.vectors) - 1]
    most = min(int(NUMBERS_OF_VALUES[-1] * span.rank) + SPARE_VALUES, MOST_VALUES)
    others = torch.arange(len(left) - 1)
    while len(chosen) < most and len(others):
        pivots = scipy.linalg.qr(left[others].T.numpy(), mode="r", pivoting=True)[1][: span.rank]
        chosen += others[pivots].tolist()
        is_left = torch.ones(len(others), dtype=torch.bool)
        is_left[pivots] = False
        others = others[is_left]
    return torch.tensor(chosen[:most])


def _metric(span: LevelSpan, used: Int[Tensor, " used"]) -> Float[Tensor, "used used"]:
    """Return the matrix that maps some values of a vector to how unusual they are for an input.

    Coefficients of inputs are taken to be normal variables of the usual size, and noise too: the inverse square root of
    the covariance of the values.
    """
    axes, sizes, _ = torch.linalg.svd(_usual_values(span, used), full_matrices=True)
    matrix: Tensor = axes / _variances(span, sizes, len(used)).sqrt()
    return matrix


def _usual_values(span: LevelSpan, used: Int[Tensor, " used"]) -> Float[Tensor, "used rank"]:
    """Return a square root of the covariance of some values of an input, without noise."""
    return span.vectors[used] * (span.usual_coefficient / math.sqrt(span.rank))


def _variances(span: LevelSpan, sizes: Float[Tensor, " axis"], count: int) -> Float[Tensor, " used"]:
    """Return the variance of values along all axes, given their size along the first ones without noise."""
    variance = torch.full((count,), span.noise_of_input**2, dtype=torch.float64)
    variance[: len(sizes)] += sizes.square()
    return variance


def _extend(
    span: LevelSpan, whole: Float[Tensor, "vector known"], used: Int[Tensor, " used"]
) -> Float[Tensor, "more used"]:
    """Return a basis of all whole numbers in more values: the likeliest ones for each vector, and each new value."""
    known = whole.shape[1]
    if known == len(used):
        return whole
    # Coefficients of the usual size are the likeliest; without that, as many vectors as values fit anything.
    prior = torch.eye(span.rank, dtype=torch.float64) * (math.sqrt(span.rank) / span.usual_coefficient)
    equations = torch.cat([span.vectors[used[:known]] / span.noise_of_input, prior])
    values = torch.cat([whole.T / span.noise_of_input, torch.zeros(span.rank, len(whole), dtype=torch.float64)])
    likeliest = span.vectors[used[known:]] @ torch.linalg.lstsq(equations, values).solution
    new = torch.eye(len(used) - known, dtype=torch.float64)
    empty = torch.zeros(len(new), known, dtype=torch.float64)
    return torch.cat([torch.cat([whole, likeliest.T.round()], dim=1), torch.cat([empty, new], dim=1)])
