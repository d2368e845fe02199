"""What the paper observed, as statements about numbers that can turn out false."""

import itertools
from collections.abc import Sequence
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
"""By how much of all images a share may fall and still count as unaffected."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A statement of the paper, whether it holds here, and the numbers that decide."""

    states: str
    holds: bool
    values: dict[str, float]

    @property
    def sentence(self) -> str:
        """What the paper found, whether it is so here, and the numbers."""
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in self.values.items())
        return f"the paper finds that {self.states}; {'so it is here' if self.holds else 'not so here'} ({numbers})."

    def to_json(self) -> dict[str, Any]:
        """Return everything for machines."""
        return {"states": self.states, "holds": self.holds, "values": self.values}


def smaller_is_easier(rows: Sequence[Row]) -> Observation:
    """Smaller training sets are easier to reconstruct: the share of good images falls with every larger size."""
    shares = {f"{size} images": share(where(rows, size=size)) for size in sorted(distinct(rows, "size"))}
    return Observation(
        states="the smaller the set, the larger the share of good reconstructions",
        holds=_falls(list(shares.values())),
        values=shares,
    )


def wider_resolves_more(rows: Sequence[Row]) -> Observation:
    """Wider models can resolve larger datasets: the share of good images rises with every larger width."""
    shares = {f"width {width}": share(where(rows, width=width)) for width in sorted(distinct(rows, "width"))}
    return Observation(
        states="the wider the network, the larger the share of good reconstructions",
        holds=_falls(list(shares.values())[::-1]),
        values=shares,
    )


def linearised_is_better(rows: Sequence[Row]) -> Observation:
    """Linearisation improves quality: more images resolved, and better ones, from the same draws and widths."""
    shares = {
        f"{variant.name} {kind}": share(where(rows, variant=variant.name), kind)
        for kind in ("good", "fine")
        for variant in (STANDARD, LINEARISED)
    }
    good, good_linearised, fine, fine_linearised = shares.values()
    return Observation(
        states="linearised networks give away more images than standard ones, and better",
        holds=good_linearised > good and fine_linearised > fine,
        values=shares,
    )


def unaffected_by(rows: Sequence[Row], variant: Variant) -> Observation:
    """Reconstruction quality is unaffected by a variant of training, or better."""
    shares = {one.name: share(where(rows, variant=one.name)) for one in (STANDARD, variant)}
    return Observation(
        states=f"networks {variant.name} give away as much as fully trained ones",
        holds=shares[variant.name] >= shares[STANDARD.name] - UNAFFECTED,
        values=shares,
    )


def more_classes_are_better(rows: Sequence[Row]) -> Observation:
    """The quality improves with more classes: more good images from as many training images."""
    shares = {one.name: share(where(rows, variant=one.name)) for one in (STANDARD, TEN_CLASSES)}
    return Observation(
        states="ten classes give away more good reconstructions than two",
        holds=shares[TEN_CLASSES.name] > shares[STANDARD.name],
        values={"two classes": shares[STANDARD.name], "ten classes": shares[TEN_CLASSES.name]},
    )


def error_follows_kernel_distance(rows: Sequence[Row]) -> Observation:
    """The mean reconstruction error is strongly correlated with how much the kernel evolves over training."""
    distances, errors = [row["kernel_distance"] for row in rows], [mean_error(row) for row in rows]
    correlation = float(spearmanr(distances, errors).statistic) if len(rows) > 2 else float("nan")
    return Observation(
        states="the further training moves the tangent kernel, the worse the reconstruction",
        holds=correlation > 0.5,
        values={"rank correlation": correlation, "largest distance": max(distances)},
    )


def more_classes_move_the_kernel_less(rows: Sequence[Row]) -> Observation:
    """Multiclass classification sees lower kernel distances than binary."""
    largest = {
        one.name: max(row["kernel_distance"] for row in where(rows, variant=one.name))
        for one in (STANDARD, TEN_CLASSES)
    }
    return Observation(
        states="with ten classes the kernel moves less far than with two",
        holds=largest[TEN_CLASSES.name] < largest[STANDARD.name],
        values={"two classes, at most": largest[STANDARD.name], "ten classes, at most": largest[TEN_CLASSES.name]},
    )


def _falls(values: Sequence[float]) -> bool:
    """Tell whether values never rise, and fall in the end."""
    return all(a >= b for a, b in itertools.pairwise(values)) and values[0] > values[-1]
