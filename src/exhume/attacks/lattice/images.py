"""Find the images in a lattice of whole numbers: the vectors whose values all lie in their range.

The lattice consists of all combinations of the images with whole numbers, and almost all of these leave the range.
Images are short vectors by two measures at once: their values are near the middle of the range, and their coefficients
in the evidence are small. A basis that is reduced by both consists of images and of sums and differences of few. Images
that are known leave a lattice with fewer dimensions to the others, so the rest is reduced again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.attacks.lattice.reduction import nearest_combination, reduce_basis, volume
from exhume.attacks.lattice.whole_vectors import LevelSpan
from exhume.attacks.levels import STEPS

POWERS = (0.5, 0.3, 0.0, 0.7, 0.85, 1.0)
"""By which power of the strength of a direction coefficients are weighted, one after another: 0 measures values, and 1
measures coefficients. Images differ in how strongly the evidence shows them, so no single one suits all. In networks at
rest some directions are a thousand times weaker than others, and values alone lead to the images."""
PREVIEWED = 64
"""Number of values by which most combinations are refuted."""
NARROWER, SMALL_PART, NEWTON_STEPS = 0.08, 1e-4, 30
"""How much narrower the range is in which a vector is brought, on each side, the weight of values inside of it, and the
largest number of steps. With 0, 0.08 and 0.24, the solution was off by 0.30, 0.17 and 0.48 for one image, and by 0.36,
0.14 and 0.29 for another."""
MOST_ADDED = 2
"""Largest number of times that a known image is added to a combination, to give it the constant of one input."""
MANY = 1 << 17
"""Largest number of combinations that are previewed at once."""


@dataclass(frozen=True, kw_only=True)
class FoundImages:
    """Images, and vectors that complete them to a basis of the lattice."""

    images: Float[Tensor, "image value"]
    rest: Float[Tensor, "vector value"]

    @property
    def basis(self) -> Float[Tensor, "vector value"]:
        """The rest, then the images."""
        return torch.cat([self.rest, self.images])


def find_images(
    whole: Float[Tensor, "vector value"],
    span: LevelSpan,
    generator: torch.Generator,
    rounds: int = 40,
    tick: Callable[[int], None] = lambda found: None,
) -> FoundImages:
    """Find the images in a lattice.

    Args:
        whole: a basis of the lattice; the last value of a vector is its constant.
        span: the span of all inputs.
        generator: the source of chance.
        rounds: largest number of reductions; it ends after two reductions by each measure without a new image.
        tick: called before each reduction with the number of images so far; may raise to stop.
    """
    found, idle = FoundImages(images=whole[:0], rest=whole), 0
    for turn in range(rounds):
        if len(found.rest) == 0 or idle >= 2 * len(POWERS):
            break
        tick(len(found.images))
        before = len(found.images)
        shuffled = torch.randperm(len(found.rest), generator=generator) if turn else torch.arange(len(found.rest))
        found = FoundImages(images=found.images, rest=found.rest[shuffled])
        found = _adopt(_reduce_rest(found, span, POWERS[turn % len(POWERS)]), generator)
        idle = 0 if len(found.images) > before else idle + 1
    return found


def are_inside(vectors: Float[Tensor, "vector value"]) -> Bool[Tensor, " vector"]:
    """Return which vectors have the constant of one input and all values in their range."""
    is_inside: Tensor = ((vectors >= 0) & (vectors <= STEPS)).all(dim=1)
    return is_inside & (vectors[:, -1] == 1)


def _embed(vectors: Float[Tensor, "vector value"], span: LevelSpan, power: float) -> Float[Tensor, "vector measure"]:
    """Measure vectors by values and by coefficients, which weigh the same over all of the lattice."""
    left, strengths = span.axes
    middle = vectors[:, -1:] * (STEPS / 2)
    centred = torch.cat([vectors[:, :-1] - middle, middle], dim=1)
    weighted = (vectors @ left) / strengths**power
    return torch.cat([part / volume(part) for part in (centred, weighted)], dim=1)


def _reduce_rest(found: FoundImages, span: LevelSpan, power: float) -> FoundImages:
    """Reduce the rest up to combinations of known images, then subtract these."""
    count = len(found.rest)
    measured = _embed(found.basis, span, power)
    rest, known = measured[:count], measured[count:]
    axes = torch.linalg.qr(known.T).Q
    combined = reduce_basis(rest - (rest @ axes) @ axes.T)
    reduced = combined @ found.rest
    if len(known):
        reduced = reduced - nearest_combination(combined @ rest, known) @ found.images
    return FoundImages(images=found.images, rest=reduced.round())


def _adopt(found: FoundImages, generator: torch.Generator) -> FoundImages:
    """Adopt combinations of few vectors that are images, each in place of a vector of the rest."""
    few = torch.randperm(found.rest.shape[1] - 1, generator=generator)[:PREVIEWED]
    basis, count = found.basis, len(found.rest)
    combined = torch.cat([_combine(found, few), _into_range(found)])
    combined = combined[are_inside(combined @ basis)]
    images, rest = found.images, found.rest
    while len(combined):
        one = combined[0]
        # A vector that it contains once can be exchanged for it; others of these combinations are then rewritten.
        places = (one[:count].abs() == 1).nonzero()[:, 0].tolist()
        if places:
            place = places[0]
            vector = one @ torch.cat([rest, images])
            times = combined[:, place] / one[place]
            combined = torch.cat([combined - times[:, None] * one, times[:, None]], dim=1)
            keep = [other for other in range(combined.shape[1]) if other != place]
            combined, rest = combined[:, keep], torch.cat([rest[:place], rest[place + 1 :]])
            images, count = torch.cat([images, vector[None]]), count - 1
        else:
            combined = combined[1:]
        combined = combined[(combined[:, :count] != 0).any(dim=1)]  # others are images that are known
    return FoundImages(images=images, rest=rest)


def _into_range(found: FoundImages) -> Float[Tensor, "combination vector"]:
    """Return each vector of the rest, with either sign, plus the known images that bring it into the range.

    Without whole numbers this is a convex problem. Its solution is near the whole numbers that belong to an image,
    since the range leaves little room.
    """
    count, known = len(found.rest), len(found.images)
    if known < 2:
        return torch.zeros(0, count + known, dtype=torch.float64)
    # Combinations of images whose constants add up to 0.
    free = torch.linalg.svd(torch.ones(1, known, dtype=torch.float64)).Vh[1:]
    moves = (free @ found.images)[:, :-1]
    made = []
    for sign in (1.0, -1.0):
        for place, vector in enumerate(sign * found.rest):
            added = torch.full((known,), float(1 - vector[-1]) / known, dtype=torch.float64)
            values = (vector + added @ found.images)[:-1]
            whole = (added + _least_outside(values, moves) @ free).round()
            one = torch.zeros(count + known, dtype=torch.float64)
            one[place], one[count:] = sign, whole
            made.append(one)
    return torch.stack(made)


def _least_outside(values: Float[Tensor, " value"], moves: Float[Tensor, "move value"]) -> Float[Tensor, " move"]:
    """Return how often each move is added to values that then lie inside the range, as far from its ends as possible.

    Least squares of what lies outside of a narrower range, by Newton's method; all values have a small part in it.
    """
    times = torch.zeros(len(moves), dtype=torch.float64)
    for _ in range(NEWTON_STEPS):
        present = values + times @ moves
        outside = present - present.clamp(NARROWER * STEPS, (1 - NARROWER) * STEPS)
        weights = torch.where(outside == 0, SMALL_PART, 1.0)
        error = torch.where(outside == 0, SMALL_PART * (present - STEPS / 2), outside)
        step = torch.linalg.lstsq((moves * weights) @ moves.T, moves @ error).solution
        times = times - step
        if float(step.abs().max()) < 1e-4:
            break
    return times


def _combine(found: FoundImages, few: Int[Tensor, " value"]) -> Float[Tensor, "combination vector"]:
    """Return sums and differences of the rest that few values leave in the range.

    Known images make their constant that of one input.
    """
    count, known = len(found.rest), len(found.images)
    singles = torch.eye(count, dtype=torch.float64)
    first, second = torch.triu_indices(count, count, 1)
    combined = torch.cat([singles, singles[first] + singles[second], singles[first] - singles[second]])
    combined = torch.cat([combined, -combined])
    missing = 1 - (combined @ found.rest[:, -1]).round()
    whole = torch.cat([combined, torch.zeros(len(combined), known, dtype=torch.float64)], dim=1)
    made = [whole[missing == 0]]
    if known:
        lacks = whole[(missing != 0) & (missing.abs() <= MOST_ADDED)]
        added = missing[(missing != 0) & (missing.abs() <= MOST_ADDED)]
        images = torch.cat([torch.zeros(known, count), torch.eye(known)], dim=1).double()
        made.append((lacks[:, None] + added[:, None, None] * images).flatten(0, 1))
    survivors = []
    for combined in torch.split(torch.cat(made), MANY):
        preview = combined @ found.basis[:, few]
        survivors.append(combined[((preview >= 0) & (preview <= STEPS)).all(dim=1)])
    return torch.cat(survivors)
