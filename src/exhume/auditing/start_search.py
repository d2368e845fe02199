"""Find the initial weights of a network among seeds or public checkpoints.

Training moves weights little compared with the spread of their initial values, so final weights still correlate with
their own initial weights, and with no others. Under the null that weights were drawn independently, the inner product
of the two, centred per tensor, has mean zero and variance ``‖a‖²‖b‖²/(n − 1)`` over permutations, whatever the weights
are; over thousands of weights it is normal. So the correlation has a p-value, and an attacker who does not know the
initial weights can search for them.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.clues.clues import clues_of
from exhume.core.errors import ExhumeError, WeightsError
from exhume.core.progress import Progress, no_progress
from exhume.records import AttackerView, StartCandidate, StartEvidence, Weights, check_weights

SHOWN = 3
"""Number of candidates that are kept as evidence, the likeliest first."""
CERTAIN = -12.0
"""Power of ten of the p-value, corrected for all seeds, below which a search stops."""
LEAST_SHARED = 0.5
"""Least share of the final weights that a checkpoint must have; with less it is another network, not another head."""
SAMPLED_WEIGHTS = 20_000
"""Weights per tensor that a search compares; the likeliest candidates are then compared in full."""
LEAST_P = -300.0
"""Smallest power of ten that is reported for a p-value."""
LEAST_COMPARED = 16
"""Least number of seeds that are compared, so that the likeliest has others to be compared with."""


@dataclass(frozen=True)
class FoundStart:
    """Initial weights and the evidence for them."""

    weights: dict[str, Tensor]
    evidence: StartEvidence


def draw_weights(factory: Callable[[], nn.Module], seed: int) -> dict[str, Tensor]:
    """Build a model after seeding PyTorch, as its owner did, and return its weights."""
    # The owner drew the weights from the global generator, so it must be seeded here; fork_rng restores its state.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return {name: weight.detach().clone() for name, weight in factory().state_dict().items()}


def find_seed(
    view: AttackerView, build: Callable[[int], Weights], seeds: Iterable[int], progress: Progress = no_progress
) -> FoundStart:
    """Find the seed of the initial weights of ``view``.

    Args:
        view: what the attacker holds; its ``initial`` is not used.
        build: returns the weights before training for a seed, such as
            ``lambda seed: draw_weights(factory, seed)``.
        seeds: the seeds to try, in this order; the search stops early at one that is certain.
        progress: a progress callback.

    Returns:
        The likeliest initial weights and the evidence; ``evidence.is_clear`` tells whether chance explains it.

    Raises:
        WeightsError: when the weights do not fit the final weights, or do not depend on the seed.
    """
    wanted = list(seeds)
    if not wanted:
        raise ExhumeError("A search for the initial weights needs at least one seed.")
    first = build(wanted[0])
    _check_fit(view.final, first)
    second = build(wanted[0] + 1)
    drawn = {name for name in first if not torch.equal(first[name], second[name])}
    if not drawn:
        raise WeightsError("The weights of the model do not depend on the seed; its factory must draw them from torch.")
    sampled = Resemblance.of(view.final, drawn, most=SAMPLED_WEIGHTS)
    ranking: list[tuple[float, int]] = []
    certain = CERTAIN - math.log10(len(wanted))
    is_certain = False
    for number, seed in enumerate(wanted):
        if number % 25 == 0:
            progress("start", number, len(wanted), f"likeliest: seed {min(ranking, default=(0, seed))[1]}")
        distance, _, log10_p = sampled(first if number == 0 else build(seed))
        ranking.append((distance, seed))
        is_certain |= log10_p < certain
        if is_certain and len(ranking) >= LEAST_COMPARED:
            break
    progress("start", len(wanted), len(wanted), f"likeliest: seed {min(ranking)[1]}")
    likeliest = [(f"seed {seed}", dict(build(seed))) for _, seed in sorted(ranking)[:SHOWN]]
    return _found(view, Resemblance.of(view.final, drawn), likeliest, tried=len(ranking), paid=len(wanted))


def find_base(view: AttackerView, bases: Mapping[str, Weights]) -> FoundStart:
    """Find the public checkpoint that ``view.final`` was fine-tuned from.

    Weights that a checkpoint lacks or has in another shape (a new head) are unknown; the final ones replace them.
    """
    if not bases:
        raise ExhumeError("A search for the initial weights needs at least one checkpoint.")
    expected = {name: weight.shape for name, weight in view.final.items()}
    least = LEAST_SHARED * _count(view.final, view.final)
    fitting = {name: base for name, base in bases.items() if _count(view.final, _shared(view.final, base)) >= least}
    if not fitting:
        for base in bases.values():
            check_weights(base, expected, "initial")
    bases = fitting
    shared = set.intersection(*(_shared(view.final, base) for base in bases.values()))
    resemblance = Resemblance.of(view.final, shared)
    ranked = sorted(bases, key=lambda name: resemblance(bases[name])[0])
    starts = [(name, fill_missing(view.final, bases[name])) for name in ranked[:SHOWN]]
    found = _found(view, resemblance, starts, tried=len(bases), paid=len(bases))
    missing = view.final.keys() - _shared(view.final, bases[ranked[0]])
    return replace(found, evidence=replace(found.evidence, stand_ins=tuple(sorted(missing))))


def fill_missing(final: Weights, base: Weights) -> dict[str, Tensor]:
    """Return the weights of ``base`` that fit, and the final weights for the others."""
    shared = _shared(final, base)
    return {name: base[name] if name in shared else weight for name, weight in final.items()}


@dataclass(frozen=True)
class Resemblance:
    """Measures how far final weights resemble candidates for the initial weights."""

    centred: Mapping[str, Float[Tensor, " weight"]]
    """The final weights per tensor, without their mean."""
    raw: Mapping[str, Float[Tensor, " weight"]]
    most: int | None = None
    """Largest number of weights per tensor to compare, evenly spread; None: all."""

    @classmethod
    def of(cls, final: Weights, names: Iterable[str], most: int | None = None) -> "Resemblance":
        """Prepare the weights with these names."""
        raw = {
            name: _flat(final[name], most)
            for name in sorted(names)
            if final[name].is_floating_point() and final[name].numel() > 1
        }
        return cls({name: weight - weight.mean() for name, weight in raw.items()}, raw, most)

    def __call__(self, start: Weights) -> tuple[float, float, float]:
        """Return the relative distance, the correlation, and the power of ten of its p-value."""
        moved = size = weighted = freedom = 0.0
        for name, end in self.raw.items():
            begin = _flat(start[name], self.most)
            moved += float((end - begin).square().sum())
            size += float(end.square().sum())
            a, b = self.centred[name], begin - begin.mean()
            norms = float(a.norm() * b.norm())
            if norms > 0:
                weighted += (len(a) - 1) * float(a @ b) / norms
                freedom += len(a) - 1
        z = weighted / math.sqrt(freedom) if freedom else 0.0
        log_p = float(torch.special.log_ndtr(torch.tensor(-z, dtype=torch.float64)))
        return math.sqrt(moved / size) if size else math.inf, weighted / max(freedom, 1.0), log_p / math.log(10)


def _flat(weight: Tensor, most: int | None) -> Float[Tensor, " weight"]:
    flat = weight.detach().flatten()
    return flat[:: max(1, len(flat) // most) if most else 1].cpu().double()


def _found(
    view: AttackerView, resemblance: Resemblance, starts: list[tuple[str, dict[str, Tensor]]], tried: int, paid: int
) -> FoundStart:
    candidates = [_candidate(view, resemblance, name, weights, paid) for name, weights in starts]
    return FoundStart(starts[0][1], StartEvidence(candidates=tuple(candidates), tried=tried))


def _candidate(
    view: AttackerView, resemblance: Resemblance, name: str, weights: dict[str, Tensor], paid: int
) -> StartCandidate:
    distance, correlation, log10_p = resemblance(weights)
    subspace = clues_of(replace(view, initial=weights)).subspace
    return StartCandidate(
        name=name,
        distance=distance,
        correlation=correlation,
        log10_p=max(LEAST_P, min(0.0, log10_p + math.log10(paid))),
        rank=None if subspace is None else subspace.rank,
        full_rank=None if subspace is None else min(subspace.layer.change.shape),
    )


def _shared(final: Weights, base: Weights) -> set[str]:
    return {name for name, weight in final.items() if name in base and base[name].shape == weight.shape}


def _count(weights: Weights, names: Iterable[str]) -> int:
    return sum(weights[name].numel() for name in names)


def _check_fit(final: Weights, start: Weights) -> None:
    missing = sorted(final.keys() - _shared(final, start))
    if missing:
        raise WeightsError(f"The model that the factory builds has no {missing[0]!r} as the final weights have.")
