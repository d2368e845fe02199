"""Proofs by levels: the pixels of stored images are whole numbers of steps, which a wrong reconstruction does not hit.

A pixel of an 8-bit image is a multiple of 1/255 of its range. A wrong input is a combination of true ones with
arbitrary weights, so its values lie anywhere between two levels. If all of them are on levels, up to an error far
smaller than a step, chance does not explain it, and rounding makes it exact. The proof is valid only for attacks that
do not use levels: one that rounds its results, or starts from images, returns values on levels even when it is wrong.

The number of steps is not searched for. A training input that is all black makes any scale of the others possible, and
a scaled image lies on levels of its own. Equations in whole numbers have solutions on multiples of the true steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhume.core.json_values import to_json_value
from exhume.core.progress import Tick, no_tick
from exhume.core.text import count_noun
from exhume.records import AttackerView, Outcome, Reconstruction

STEPS = 255
"""Number of steps from the lowest to the highest value of an 8-bit image."""
Confirm = Callable[[Float[Tensor, "input ..."]], Bool[Tensor, " input"]]
"""Returns which inputs were trained on as they are; in pixel units."""
PREVIEWED = 64
"""Number of values by which most points on a line are refuted."""
LEAST_DISTANCE = 1e-3
"""Least distance from a level that counts, in half steps: no single value proves much, however exact it is. Values may
be round for other reasons, such as a half."""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Which inputs lie on levels, and what that proves."""

    is_proven: Bool[Tensor, " candidate"]
    log_p: Float[Tensor, " candidate"]
    """Log p-value of each input, corrected for the number of inputs."""
    nearest: Float[Tensor, "candidate value"]
    """The inputs, with every value on its nearest level."""


def log_p_levels(
    values: Float[Tensor, "candidate value"], free: int | None = None, steps: int = STEPS
) -> Float[Tensor, " candidate"]:
    """Bound the log probability that values between 0 and 1 are as near to levels by chance.

    Half the distance between two levels is 1 here. A value by chance has a distance that is uniform between 0 and 1,
    and the probability that ``n`` of them have a sum of squares of at most ``s`` is at most the volume of a ball with
    radius ``√s`` in the positive orthant. Values on the same level may be equal for a reason, as those of a background
    are, so the largest distance stands for each level. The ends of the range prove nothing. A single value more than a
    quarter of a step from its nearest level, or outside the range by more than that, refutes the input.

    Args:
        values: one input per row.
        free: how many numbers a wrong input depends on, which is how many of its values may be independent; None: all.
        steps: the number of steps from 0 to 1.
    """
    scaled = values.double().nan_to_num(-1.0) * steps
    nearest = scaled.round().clamp(0, steps)
    distance = 2 * (scaled - nearest).abs().clamp(min=LEAST_DISTANCE / 2)
    worst = torch.full((len(values), steps + 1), -1.0, dtype=torch.float64, device=values.device)
    worst = worst.scatter_reduce(1, nearest.long(), distance, "amax")[:, 1:steps]
    counts, sums = _sum_evenly(worst, free)
    return torch.where(distance.amax(dim=1) > 0.5, 0.0, log_p_near(counts, sums))


def log_p_near(counts: Int[Tensor, " candidate"], sums: Float[Tensor, " candidate"]) -> Float[Tensor, " candidate"]:
    """Bound the log probability that so many distances, uniform between 0 and 1, have so small a sum of squares."""
    half = counts.double() / 2
    log_p = half * (math.pi / 4 * sums.clamp(min=1e-300)).log() - torch.lgamma(half + 1)
    return log_p.clamp(max=0.0)


def _sum_evenly(
    worst: Float[Tensor, "candidate level"], free: int | None
) -> tuple[Int[Tensor, " candidate"], Float[Tensor, " candidate"]]:
    """Return how many levels count, and the sum of their squares: all that occur, or ``free`` at even places."""
    occurs = worst >= 0
    if free is not None:
        count, place = occurs.sum(dim=1, keepdim=True), occurs.cumsum(dim=1)
        is_next = (place * free).div(count.clamp(min=1), rounding_mode="floor")
        before = ((place - 1) * free).div(count.clamp(min=1), rounding_mode="floor")
        occurs = occurs & ((count <= free) | (is_next > before))
    return occurs.sum(dim=1), (worst.square() * occurs).sum(dim=1)


def find_levels(
    values: Float[Tensor, "candidate value"], error_rate: float, free: int | None = None, tried: int = 0
) -> Levels:
    """Find which inputs, with values between 0 and 1, lie on the levels of 8-bit images.

    Args:
        values: one input per row.
        error_rate: the probability, over all inputs, of an input that lies on levels by chance.
        free: as in :func:`log_p_levels`.
        tried: number of inputs that were tried in all, these at least.
    """
    log_p = (log_p_levels(values, free) + math.log(max(len(values), tried, 1))).clamp(max=0.0)
    nearest = ((values.double() * STEPS).round() / STEPS).clamp(0, 1)
    return Levels(is_proven=log_p < math.log(error_rate), log_p=log_p, nearest=nearest.to(values))


def are_pinned(
    inputs: Float[Tensor, "input value"], others: Float[Tensor, "other value"], tick: Tick = no_tick
) -> Bool[Tensor, " input"]:
    """Return which inputs lie on no line to another one that has further points on levels.

    Some 8-bit images have coarser levels, as those of MNIST that were drawn with 36 shades: the 36th part of the way
    from one to another is again on 255 levels. An input may then be such a point, and its levels do not prove it.

    Args:
        inputs: inputs on levels, with values between 0 and 1.
        others: inputs that they may be mixed with; an input itself among them does not count.
        tick: called before each input; may raise to stop.
    """
    parts = torch.arange(1, 4 * STEPS, device=inputs.device).double() / (4 * STEPS)
    generator = torch.Generator().manual_seed(0)
    few = torch.randperm(inputs.shape[1], generator=generator)[:PREVIEWED].to(inputs.device)
    pinned = []
    for one in inputs.double():
        tick()
        ways = (others.double() - one) * STEPS
        scaled = parts[:, None, None] * ways[:, few]
        survivors = ((scaled - scaled.round()).abs() <= 0.25).all(dim=2).nonzero()
        moved = parts[survivors[:, 0], None] * ways[survivors[:, 1]]
        is_on = ((moved - moved.round()).abs() <= 0.25).all(dim=1)
        left = (ways[survivors[:, 1]] - moved).abs().amax(dim=1)  # near either end are the two inputs themselves
        is_on &= (moved.abs().amax(dim=1) > 0.5) & (left > 0.5)
        pinned.append(not bool(is_on.any()))
    return torch.tensor(pinned, dtype=torch.bool)


def prove_by_levels(
    view: AttackerView,
    found: Reconstruction,
    error_rate: float,
    free: int | None = None,
    tried: int = 0,
    confirm: Confirm | None = None,
    known: Float[Tensor, " candidate"] | None = None,
) -> Reconstruction:
    """Certify the inputs of a reconstruction whose values lie on levels, and round them to these.

    Args:
        view: what the attacker holds; nothing is proven where the range of inputs is unknown.
        found: the reconstruction, on the CPU; of an attack that neither rounds nor starts from images.
        error_rate: the probability, over all inputs, of certifying anything that was not trained on.
        free: how many numbers a wrong input depends on; None: as many as it has values.
        tried: number of inputs that were tried in all, those of the reconstruction at least.
        confirm: tells which of the inputs on levels were trained on as they are, rather than as parts of others; None:
            all.
        known: log p-values of inputs that were rounded before, by their values until then; NaN for others.
    """
    if view.bounds is None or len(found) == 0:
        return found
    low, high = view.bounds
    values = (found.inputs.flatten(1).double() - low) / (high - low)
    levels = find_levels(values, error_rate, free, tried)
    log_p = levels.log_p if known is None else torch.where(known.isnan(), levels.log_p, known.to(levels.log_p))
    # Images of one colour are in the span wherever the brightness of inputs varied.
    is_proven = (log_p < math.log(error_rate)) & (levels.nearest != levels.nearest[:, :1]).any(dim=1)
    rounded = (low + levels.nearest * (high - low)).reshape(found.inputs.shape).to(found.inputs)
    if confirm is not None and bool(is_proven.any()):
        is_proven = is_proven.masked_scatter(is_proven, confirm(rounded[is_proven]))
    if not bool(is_proven.any()):
        return found
    shape = (-1,) + (1,) * (found.inputs.ndim - 1)
    certified = found.certified | is_proven
    p_values = torch.ones(len(found), dtype=torch.float64) if found.p_values is None else found.p_values
    about = dict(found.diagnostics) | {"on_levels": to_json_value(is_proven)}
    # The value of a level is rounded twice: here, and where the network was trained on it.
    rounding = torch.finfo(torch.float32).eps * max(abs(low), abs(high))
    for name, value in (("doubts", ""), ("error_bounds", rounding)):
        if name in about:
            pairs = zip(about[name], is_proven.tolist(), strict=True)
            about[name] = [value if proven else old for old, proven in pairs]
    more = int((is_proven & ~found.certified).sum())
    is_complete = int(certified.sum()) == about.get("training_size_estimate")
    return replace(
        found,
        inputs=torch.where(is_proven.reshape(shape), rounded, found.inputs),
        certified=certified,
        confidence=torch.where(is_proven, 1.0, found.confidence),
        p_values=torch.where(is_proven, torch.minimum(p_values, log_p.exp().to(p_values)), p_values),
        outcome=Outcome.CERTIFIED if is_complete else Outcome.PARTIAL,
        message=f"{found.message} {count_noun(more, 'further input')} "
        f"{'is' if more == 1 else 'are'} certified by the levels of 8-bit images."
        if more
        else found.message,
        diagnostics=about,
    )
