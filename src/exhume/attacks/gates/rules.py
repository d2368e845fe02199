"""The tuned numbers of the gate certificate, as two values: one decides what is certified, one how rows are searched.

Sizes of row entries are in units of the row's root mean square over the informative units.
"""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from exhume.core.settings import settings

Share = Annotated[float, Field(gt=0, le=1)]
"""A fraction above 0 and up to 1."""


@settings
class CertificateRules:
    """What counts as zero, as the row of one input, as exact, and as determined."""

    zero_width: PositiveFloat = 6.0
    """Largest size of an entry that counts as zero, in standard deviations of its noise; Gaussian noise exceeds six of
    them in two entries of 10⁹."""
    widest_zero: PositiveFloat = 1e-4
    """Size of an entry that a row of unknown precision may have at a zero, in root mean squares of the row. Where noise
    and the scatter of the row's zeros are less, they decide."""
    informative_width: PositiveFloat = 6.0
    """Norm of a unit's change, relative to that of its noise, from which the unit is informative."""
    exact_contradictions: Share = 0.004
    """Largest fraction of units that may contradict an exact input."""
    forgiven_contradictions: NonNegativeInt = 3
    """Number of contradicting units that chance alone may bring in a layer of any size."""
    precision: PositiveFloat = 0.02
    """Largest error of a value of an exact input, in units of the input; about five grey levels of 256."""
    noise_tail: PositiveFloat = 5.5
    """Largest deviation among the values of an input, in standard deviations of their noise."""
    density_band: PositiveFloat = 0.05
    """Size up to which small entries are counted to estimate how many zeros chance makes, in root mean squares of the
    row (three widths of a zero where that is more): large enough for a count with little scatter, small enough for a
    constant density."""
    range_slack: Share = 0.05
    """How far values may lie outside their range, as a fraction of it; covers the noise of the weights."""
    touching_distance: PositiveFloat = 1e-3
    """Relative distance to an end of the range within which a value touches it."""
    least_touching: PositiveInt = 3
    """Number of values that must touch the range to prove the scale of an input without a constant."""

    def allowed_contradictions(self, units: int) -> float:
        """Return the largest number of units that may contradict an exact input of a layer with so many units."""
        return max(self.exact_contradictions * units, float(self.forgiven_contradictions))


@settings
class SearchRules:
    """How rows are searched and chosen. None of these numbers decides what is certified."""

    # Rows of given inputs
    seeds: PositiveInt = 128
    """Inputs to start from per round; three per missing row where that is more."""
    unit_shares: tuple[PositiveFloat | None, ...] = (1.5, 3.0, 5.0, None)
    """Numbers of units, per dimension of the row space, that an input most certainly left off and its row is found
    from; each try takes one, None takes all. Few are best where gates moved much, all where inputs are similar."""
    jitter: NonNegativeFloat = 2.0
    """Scale of the Gumbel noise on the scores of units in one more try."""
    dropped: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Fraction of units that a last try leaves out at random."""

    # Choice
    similar_cosine: Share = 1 - 1e-4
    """Cosine above which rough rows are the same."""
    same_cosine: Share = 1 - 1e-9
    """Cosine above which polished rows are the same; a smaller one where noise moves rows further. With 1 - 1e-6, a
    mixture with 2 % of two nearly parallel rows hides the true row of one of the demo's faces."""
    largest_contradiction: Share = 0.15
    """Largest fraction of a row's zeros that its own fitted input may contradict. The difference of two rows with a
    constant ratio on shared units is sparser than both, but no input is off where it is zero."""
    least_explained: Share = 0.8
    """Least share of a row that back-propagation must explain, relative to the row it explains best; used where all
    gradients were taken at nearly the same weights. True rows have 0.72 to 1 there. Relative, because dropout and batch
    statistics, which cannot be predicted, lower the shares of all rows."""
    least_explained_linearly: Share = 0.95
    """The same in one gradient below a linear output layer, where gates alone decide the signals. True rows have 0.98
    to 1 there."""
    independence: Share = 1e-2
    """Least part of a row that heavier rows do not span."""

    # Sets of units
    unit_sets: PositiveInt = 400
    """Largest number of random sets of units, each of which determines a row, per input."""
