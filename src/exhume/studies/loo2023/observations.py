"""Statements of Loo et al. (2023) about Figures 2 to 5, checked against numbers; each can turn out false."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import spearmanr

from exhume.studies.grid import (
    LINEARISED,
    STANDARD,
    TEN_CLASSES,
    Row,
    Variant,
    distinct,
    mean_error,
    share,
    where,
)

UNAFFECTED = 0.1
"""Largest fall of a share of images that still counts as unaffected."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A statement of the paper, whether it holds here, and the numbers that decide it."""

    states: str
    holds: bool
    values: dict[str, float]

    @property
    def sentence(self) -> str:
        """What the paper found, whether it holds here, and the numbers."""
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in self.values.items())
        holds = "this holds here" if self.holds else "this does not hold here"
        return f"The paper finds that {self.states}; {holds} ({numbers})."

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"states": self.states, "holds": self.holds, "values": self.values}


def describe_observations(observations: Mapping[str, Sequence[Observation]]) -> str:
    """Return the sentences of all observations, by source."""
    return " ".join(f"{source}: {one.sentence}" for source, every in observations.items() for one in every)


def smaller_is_easier(rows: Sequence[Row]) -> Observation:
    """Check that smaller sets are easier to reconstruct: the share of good images falls with every larger size."""
    shares = {f"{size} images": share(where(rows, size=size)) for size in sorted(distinct(rows, "size"))}
    return Observation(
        states="the smaller the set, the larger the share of good reconstructions",
        holds=_is_falling(list(shares.values())),
        values=shares,
    )


def wider_resolves_more(rows: Sequence[Row]) -> Observation:
    """Check that wider models resolve larger data sets: the share of good images rises with every larger width."""
    shares = {f"width {width}": share(where(rows, width=width)) for width in sorted(distinct(rows, "width"))}
    return Observation(
        states="the wider the network, the larger the share of good reconstructions",
        holds=_is_falling(list(shares.values())[::-1]),
        values=shares,
    )


def linearised_is_better(rows: Sequence[Row]) -> Observation:
    """Check that linearisation resolves more images, and better ones, from the same draws and widths."""
    shares = {
        f"{variant.name} {kind}": share(where(rows, variant=variant.name), kind)
        for kind in ("good", "fine")
        for variant in (STANDARD, LINEARISED)
    }
    good, good_linearised, fine, fine_linearised = shares.values()
    return Observation(
        states="linearised networks reveal more images than standard ones, and in better quality",
        holds=good_linearised > good and fine_linearised > fine,
        values=shares,
    )


def unaffected_by(rows: Sequence[Row], variant: Variant) -> Observation:
    """Check that a variant of training leaves the quality of reconstructions unaffected, or improves it."""
    shares = {one.name: share(where(rows, variant=one.name)) for one in (STANDARD, variant)}
    return Observation(
        states=f"networks {variant.name} reveal as much as fully trained ones",
        holds=shares[variant.name] >= shares[STANDARD.name] - UNAFFECTED,
        values=shares,
    )


def more_classes_are_better(rows: Sequence[Row]) -> Observation:
    """Check that more classes improve quality: more good images from as many training images."""
    shares = {one.name: share(where(rows, variant=one.name)) for one in (STANDARD, TEN_CLASSES)}
    return Observation(
        states="ten classes give more good reconstructions than two",
        holds=shares[TEN_CLASSES.name] > shares[STANDARD.name],
        values={"two classes": shares[STANDARD.name], "ten classes": shares[TEN_CLASSES.name]},
    )


def error_follows_kernel_distance(rows: Sequence[Row]) -> Observation:
    """Check that the mean reconstruction error correlates strongly with the change of the kernel in training."""
    distances, errors = [row["kernel_distance"] for row in rows], [mean_error(row) for row in rows]
    correlation = float(spearmanr(distances, errors).statistic) if len(rows) > 2 else float("nan")
    return Observation(
        states="the more training changes the tangent kernel, the worse the reconstruction",
        holds=correlation > 0.5,
        values={"rank correlation": correlation, "largest distance": max(distances)},
    )


def more_classes_change_the_kernel_less(rows: Sequence[Row]) -> Observation:
    """Check that the kernel changes less with ten classes than with two."""
    largest = {
        one.name: max(row["kernel_distance"] for row in where(rows, variant=one.name))
        for one in (STANDARD, TEN_CLASSES)
    }
    return Observation(
        states="the kernel changes less with ten classes than with two",
        holds=largest[TEN_CLASSES.name] < largest[STANDARD.name],
        values={"two classes, at most": largest[STANDARD.name], "ten classes, at most": largest[TEN_CLASSES.name]},
    )


def _is_falling(values: Sequence[float]) -> bool:
    """Return whether values never rise, and fall from first to last."""
    return all(a >= b for a, b in itertools.pairwise(values)) and values[0] > values[-1]
