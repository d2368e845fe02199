"""The numbers of the gate certificate, as two values: one decides what is certified, one how rows are searched.

Sizes of row entries are in units of the row's root mean square over the informative units.
"""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt
from scipy.stats import norm, poisson

from exhume.core.settings import settings

Share = Annotated[float, Field(gt=0, le=1)]
"""A fraction above 0 and up to 1."""
Rate = Annotated[float, Field(gt=0, lt=1)]
"""A probability between 0 and 1."""


@settings
class CertificateRules:
    """What counts as zero, as the row of one input, as exact, and as determined.

    Most thresholds follow from the error rate and the measured noise: how far noise deviates (:meth:`deviations`), how
    many contradictions chance brings (:meth:`allowed_contradictions`). The others are sizes with a meaning, or limits
    of an approximation that were measured.
    """

    error_rate: Rate = 1e-3
    """Probability, over the whole run, of certifying anything that was not trained on."""
    precision: PositiveFloat = 0.02
    """Largest error of a value of an exact input, in units of the input; about five grey levels of 256. Values may lie
    outside their range by as much of it."""
    widest_zero: PositiveFloat = 1e-4
    """Size of an entry that a row of unknown precision may have at a zero. Where noise and the scatter of the row's
    zeros are less, they decide. Also the largest part of the row of one input that its backward signals leave
    unexplained, beside noise: measured in gradients of four data sets, at most 2e-5 for true rows, at least 2e-2 for
    sums."""
    clear_entry: PositiveFloat = 1e-2
    """Size from which an entry is clearly not zero, and counts against a sum or a mixture. With 1e-4 a part of 1 % of
    another row in a buffer went unnoticed; with 0.05, 14 of 20 near-duplicates are certified instead of 20."""
    smallest_part: Share = 0.1
    """Smallest part of a mixture that its zeros must rule out, relative to the whole, where noise is large. After noise
    of 3e-6 on the weights, 14 of 16 faces are certified with 0.1, and 2 with 0.02."""
    density_band: PositiveFloat = 0.05
    """Size up to which small entries show how many zeros chance makes: wide enough for a count with little scatter,
    narrow enough for a constant density. Three widths of a zero where that is more."""
    clean: PositiveFloat = 3.0
    """Largest scatter of the zeros of a row, relative to noise, at which nothing else is in it. Measured in weight
    changes and gradients: up to 2.4 in ordinary networks; 14 to 300 where an input lies on the line between two others
    and is nearly equal to one of them."""
    reach: PositiveFloat = 0.2
    """Distance from firing at which a unit that is off at both ends fired in between with probability 1/e. Chosen among
    0.1, 0.15, 0.2 and 0.3 on true rows of 48 small trainings, 20 with lively gates and a federated round, of whose 32
    true rows 0.1 refutes 17, and on known sums."""
    least_movement: Share = 0.1
    """Least distance that a unit is taken to have covered, in medians of all units: some return to where they began."""
    unforeseen: Rate = 1e-3
    """Probability that a unit fired, or did not, for a reason that its distance from firing does not explain."""
    misjudged: PositiveFloat = 2.0
    """Factor by which the law of firing may misjudge how many units fire in all rows together. Measured: up to 1.6 in
    true rows of federated rounds on CIFAR-10, and 5.6 where inputs were varied between steps."""
    unlikely: Rate = 0.05
    """Probability of firing below which an entry may be a trace of another row, and in an optimiser's state the
    probability of as many such entries below which they are. Chosen among 0.02, 0.05 and 0.2, when one such entry was
    enough for suspicion: in 24 small networks with near-duplicates trained by Adam, 0.02 left a false certificate and
    the others none."""
    shared_rounding: PositiveFloat = 2.0
    """Size of the rounding errors of gradients, which neighbouring entries share, relative to independent ones. Without
    it, 2 of 50 errors are 5 % above their bound in a momentum buffer."""
    like_others: Share = 0.25
    """Share of a hidden direction on the zeros of a row, relative to that of an unrelated direction, from which on it
    has nothing to do with the row. Measured: 0.11 where a pair is hidden, 0.4 to 2.6 elsewhere, with false alarms from
    0.09. (For normal directions it would follow from a beta distribution, but effects have zeros themselves.)"""
    touching_distance: PositiveFloat = 1e-3
    """Relative distance to an end of the range within which a value touches it."""
    least_touching: PositiveInt = 3
    """Number of values that must touch the range to prove the scale of an input without a constant."""

    def deviations(self, numbers: int) -> float:
        """Return how many standard deviations none of so many normal variables exceeds, except with the error rate.

        >>> round(CertificateRules().deviations(40 * 1024), 1)
        5.6
        """
        return float(norm.isf(self.error_rate / (2 * max(numbers, 1))))

    def allowed_contradictions(self, units: int) -> float:
        """Return the largest number of units of a layer that may contradict an exact input, by the Poisson law.

        >>> CertificateRules().allowed_contradictions(1024)
        5.0
        """
        return float(poisson.isf(self.error_rate, self.unforeseen * units))


@settings
class SearchRules:
    """How rows are searched and chosen. None of these numbers decides what is certified."""

    # Rows of given inputs
    seeds: PositiveInt = 128
    """Inputs to start from per round; three per missing row where that is more."""
    unit_shares: tuple[PositiveFloat | None, ...] = (1.5, 3.0, 5.0, None)
    """Numbers of units, per dimension of the row space, that an input most certainly left off and its row is found
    from; each try takes one, None takes all. Few are best where gates moved much, all where inputs are similar."""
    widths: tuple[PositiveFloat, ...] = tuple(0.3 * 5.0**-step for step in range(10))
    """Residuals beyond which a unit loses its say in a robust fit, for units of norm one; falling, so that the many
    decide first. In the state of an optimiser, units that fired long ago leave residuals of any size: with the last
    width 1e-4, none of 40 rows of faces after AdamW is found to a cosine of 1 - 1e-10, and with 1e-7, 25 are (from
    inputs that are off by a fifth of their distance to the mean)."""
    mostly_on: PositiveInt = 6
    """In one gradient: number of units per output, those that the mean input turns on most, among which the units that
    all inputs fire are looked for. Measured on 128 to 256 images of CIFAR-10: all inputs fire half of these units."""

    # Choice
    largest_contradiction: Share = 0.15
    """Largest fraction of a row's zeros that its own fitted input may contradict. The difference of two rows with a
    constant ratio on shared units is sparser than both, but no input is off where it is zero."""
    least_explained: Share = 0.8
    """Least share of a row that back-propagation must explain, relative to the row it explains best; used where all
    gradients were taken at nearly the same weights. True rows have 0.72 to 1 there. Relative, because dropout and batch
    statistics, which cannot be predicted, lower the shares of all rows."""
    least_explained_exactly: Share = 0.9
    """The same in one gradient, where gates alone decide the signals. True rows have 0.98 to 1 below a linear output
    layer, and from 0.91 on while their inputs contain others; other vectors with many zeros up to 0.8, in one gradient
    after 200 steps of Adam."""
    independence: Share = 1e-2
    """Least part of a row that heavier rows do not span, and that a row is of another one which may replace it."""
    group: PositiveInt = 6
    """Number of rows that are judged together: the inputs that an exchange moves most, the places at which a row is
    tried, the candidates that are kept per dimension of the row space, and the missing rows up to which they are
    guessed. A row that is wrong may be a small part of the right one: in one network of 14 faces, four others are
    larger."""
    volume: PositiveFloat = 4.0
    """Weight of the logarithm of the volume that the rows span, in zeros, where sums of squares are known. Rows of
    inputs that fired units together, in a single early step, combine to rows with more zeros, and gates at the end say
    nothing about these units; but such rows cancel, and span less. On CIFAR-10 one beats a true row by 26 zeros, at a
    logarithm of the volume that is lower by 10."""

    # Separation
    averaged: PositiveFloat = 4e-5
    """Deviation of the change of a unit in an optimiser's state from one gradient, relative to its size. Measured after
    300 steps of AdamW, in four networks of 40 images: features within 1 % of 33, 27, 24 and 29 images with this value,
    of 0, 29, 20 and 27 with a quarter of it."""

    # Patience
    patience: PositiveInt = 2
    """Number of rounds without anything better after which a complete set without guesses is left as it is, and the
    search ends where more inputs were separated than rows found; and how often the steps to inputs that explain the
    evidence may grow."""
    explaining_steps: PositiveInt = 250
    """Steps to inputs that explain the evidence."""
    growth: PositiveInt = 4
    """Factor by which these grow each time that they led to few rows. After AdamW on 100 images of MNIST, 250 steps
    lead to 2 rows and 1 000 steps to 50."""
    few: Share = 0.1
    """Fraction of a usual number from which on it is not few: new rows, of the missing ones; zeros beyond those that
    can be forced, of the median of all rows; and units that contradict an input that was separated. After AdamW on 40
    images of MNIST, a pool without such a limit leaves 6 of 40 rows unmixed in the first round instead of 35."""
