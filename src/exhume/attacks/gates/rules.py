"""The tuned numbers of the gate certificate, as two values: one decides what is certified, one how rows are searched.

Sizes of row entries are in units of the row's root mean square over the informative units.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings

Share = Annotated[float, Field(gt=0, le=1)]
"""A fraction above 0 and up to 1."""


@settings
class CertificateRules:
    """What counts as zero, as the row of one input, as exact, and as determined."""

    zero_width: PositiveFloat = 6.0
    """Largest size of an entry that counts as zero, in standard deviations of its noise; Gaussian noise exceeds six of
    them in two entries of 10⁹."""
    least_zero_width: PositiveFloat = 1e-3
    """Smallest value of that bound, in root mean squares of the row; matters where the noise is nearly zero."""
    informative_width: PositiveFloat = 6.0
    """Norm of a unit's change, relative to that of its noise, from which the unit is informative."""
    single_input_agreement: Share = 0.82
    """Least agreement of a row with its input. True rows reach 0.98 to 1 after lazy training and 0.85 to 0.97 after
    training that moved far (they miss units that fired only in mid-training); chance reaches 0.6."""
    exact_contradictions: Share = 0.004
    """Largest fraction of units that may contradict an exact input."""
    forgiven_contradictions: NonNegativeInt = 3
    """Number of contradicting units that chance alone may bring in a layer of any size."""
    plausible_contradictions: Share = 0.03
    """Largest fraction of contradicting units of a row that may be right itself but was read beside a wrong one."""
    precision: PositiveFloat = 0.02
    """Largest error of a value of an exact input, in units of the input; about five grey levels of 256."""
    noise_tail: PositiveFloat = 5.5
    """Largest deviation among the values of an input, in standard deviations of their noise."""
    own_zeros: Share = 0.016
    """Fraction of units on which a row must be zero and another not, for the two to be distinct."""
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

    def __post_init__(self) -> None:
        if self.plausible_contradictions < self.exact_contradictions:
            raise ExhumeError(
                f"An exact input must be plausible: exact_contradictions ({self.exact_contradictions}) may not exceed "
                f"plausible_contradictions ({self.plausible_contradictions})."
            )


@settings
class Strategy:
    """How one batch of candidates is searched."""

    iterations: PositiveInt = 20
    steered: NonNegativeInt = 10
    """Number of iterations that restart the row from the prediction of backpropagation."""
    row_steps: PositiveInt = 3
    """Re-weighted least-squares steps per iteration."""
    inverse_iterations: PositiveInt = 1
    """Inverse iterations per row step."""
    first_inverse_iterations: PositiveInt = 1
    """The same in the first iteration."""
    widths: tuple[PositiveFloat, PositiveFloat] = (0.3, 0.01)
    """Size below which an entry counts as zero, falling from the first value to the second."""
    sharpness: PositiveFloat = 8.0
    """Factor on the margins of a candidate; the larger, the more its gates are trusted."""
    first_sharpness: PositiveFloat = 3.0
    """The same for a starting point, whose margins are scaled to unit size first."""
    ridge: PositiveFloat = 0.3
    """Penalty on squared coordinates when an input is fitted to the zeros of a row."""


STEERED = Strategy()
BRIEFLY_STEERED = Strategy(inverse_iterations=2, first_inverse_iterations=2, iterations=12, steered=3)
BY_GATES = Strategy(
    first_inverse_iterations=8, inverse_iterations=2, steered=0, iterations=12, first_sharpness=30.0, widths=(0.1, 0.01)
)
NARROW = replace(BY_GATES, row_steps=6, widths=(0.05, 0.01))


@settings
class SearchRules:
    """How rows are searched, accepted and corrected. None of these numbers decides what is certified."""

    strategies: tuple[Strategy, ...] = (STEERED, BY_GATES, BRIEFLY_STEERED, NARROW)
    """Ways to search; one finds what another misses. Steering helps where training was lazy and inputs differ much;
    gates alone, with large sharpness, separate similar inputs."""
    group_strategies: tuple[Strategy, ...] = (BY_GATES, NARROW)
    """Ways to search inside a group of near-duplicates."""

    # Starting points
    least_starts: PositiveInt = 32
    """Starting points per round, at least."""
    starts_per_row: PositiveInt = 8
    """Starting points per missing row."""
    shared_silence: Share = 0.05
    """Fraction of silent units from which inputs are taken to share a mean."""
    start_distance: PositiveFloat = 3.0
    """Largest distance of a starting point from that mean, in units of the mean."""

    # Rows of given inputs
    first_widths: tuple[PositiveFloat, ...] = (0.3, 0.1, 0.03)
    """Initial sizes below which an entry counts as zero; each try takes one."""
    last_width: PositiveFloat = 0.002
    """Final size below which an entry counts as zero."""
    depth_powers: tuple[float, ...] = (0.0, 1.0)
    """Weights of a unit that is off, as powers of its distance from firing; each try takes one."""
    largest_depth: PositiveFloat = 2.0
    """Distance from firing, in units of the mean, beyond which all units weigh the same."""

    # Acceptance
    rough_agreement: Share = 0.72
    """Least agreement of a rough row that is worth sharpening; a little below that of single inputs."""
    least_coverage: Share = 0.7
    """Least coverage of an accepted row. Rows that have not converged stay below."""
    relative_sparsity: Share = 0.8
    """Zeros of an accepted row, relative to the median of those found before; unconverged rows have fewer."""
    similar_cosine: Share = 0.98
    """Cosine above which rough rows are the same."""
    same_cosine: Share = 0.9995
    """Cosine above which sharp rows are the same."""
    least_sharpened: PositiveInt = 24
    """Rough rows that are sharpened per round, at least; half the rank where that is more."""
    late_after: PositiveInt = 2
    """Rounds without a new row after which missing rows may be near-duplicates of found ones."""

    # Mixtures
    solid_entry: PositiveFloat = 0.05
    """Least size of an entry by which others are divided."""
    shared_ratios: Annotated[int, Field(ge=2)] = 4
    """Number of units that must share a ratio before a row counts as a mixture."""
    nearest_rows: PositiveInt = 8
    """Number of similar rows that are removed from a row."""

    # Corrections
    replacement_cosine: Share = 0.8
    """Least cosine of a row with the sparser one that replaces it."""
    least_improvement: PositiveFloat = 0.003
    """Least increase of the mean agreement of the others for which a row is dropped."""
    suspects: PositiveInt = 24
    """Number of rows that are tried to be dropped."""

    # Exchange
    contradiction_weight: PositiveFloat = 3.0
    """Weight of one contradicting unit, in agreeing units."""
    places: PositiveInt = 4
    """Number of rows that a proposal is tried in place of: those it is mostly made of."""
    least_part: PositiveFloat = 1e-3
    """Least part of a row in a proposal that replaces it."""
    moved_inputs: PositiveInt = 12
    """Number of inputs, those that an exchange moves most, by which it is judged."""
    promising: PositiveInt = 32
    """Number of exchanges that are made before all are judged again."""

    # Near-duplicates
    few_missing: PositiveInt = 8
    """Number of missing rows up to which their inputs are known well enough to derive rows from."""
    missing_starts: PositiveInt = 64
    """Number of inputs in the span of the missing ones from which their rows are searched."""
    largest_group: PositiveInt = 8
    """Number of rows up to which linked rows are a group of near-duplicates."""
    linked_zeros: Share = 0.05
    """Rows are linked if one has fewer zeros that the other lacks than this fraction of the units."""
    group_silence: PositiveFloat = 0.02
    """Size of entries up to which a unit is uninformative about a group."""
    group_starts: PositiveInt = 128
    """Starting points per strategy inside a group."""
    unit_sets: PositiveInt = 4_000
    """Number of random sets of units whose common zero gives a row of a group."""
    best_sets: PositiveInt = 100
    """Number of these rows that are kept."""
    proposed_inputs: PositiveInt = 48
    """Number of inputs, the worst, for which rows are proposed."""
    proposals_per_row: PositiveInt = 4
    """Number of proposals that are kept, per row."""
    repeated_cosine: Share = 0.99995
    """Cosine above which proposals are the same."""
    inside_cosine: Share = 0.999
    """Least part of a row in the span of a group it belongs to."""
    shuffles: PositiveInt = 4
    """Number of random choices of a group's rows."""
    least_independent: PositiveFloat = 1e-3
    """Least part of a row that the rows before it do not span."""
    passes: PositiveInt = 10
    """Largest number of passes."""
    idle_passes: PositiveInt = 2
    """Number of passes without an exchange after which to stop."""
