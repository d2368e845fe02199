"""The thresholds of the inversion: when features are reproduced, and when they determine their input."""

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from exhume.core.settings import settings
from exhume.inversion.search import SearchRules


@settings
class InversionRules:
    """When features are reproduced, and when they determine their input."""

    reproduced: PositiveFloat = 1e-4
    """Largest relative residual of an input that reproduces its features. Local minima leave 10⁻³ and more on the
    trunks measured, true inputs 10⁻⁷ (exact features) to 2·10⁻⁵ (features read off a float32 gradient)."""
    rounding: PositiveFloat = 2e-7
    """Standard deviation of the rounding of a feature in float32, relative to the root mean square of features."""
    noise_tail: PositiveFloat = 5.5
    """Largest deviation among the values of an input, in standard deviations."""
    precision: PositiveFloat = 0.02
    """Largest error of a value of a determined input, relative to its range; about five grey levels of 256."""
    spare_equations: NonNegativeInt = 16
    """Number of features that must agree beyond as many as the input has values. A wrong input meets each of them to
    one part in a thousand with a probability of about 10⁻³, so 16 of them by chance with 10⁻⁴⁸."""
    shift: PositiveFloat = 1e-5
    """Distance from the solution, relative to the range, at which the Jacobian is examined. Where max pooling has ties
    (a flat background), the solution itself shows the same branch in all windows."""
    near: PositiveFloat = 0.1
    """Part of the features outside the span of all features, relative to their size, up to which Gauss–Newton is tried
    (:mod:`exhume.inversion.isolation`). It saves time and proves nothing."""
    hidden: PositiveFloat = 3.0
    """Safety factor on the error that an undetected input causes, which is estimated from the known ones. Of the
    difference of two images' features, at least 21 to 53 % stay visible beside the Jacobian alone, and at least 11 to
    33 % beside all features of the batch, at most 2.3 times less (``benchmarks/deep.py --visibility``: 40 digits; three
    trunks, before and after training)."""
    shared: PositiveFloat = 0.05
    """Largest fraction of the features of an input, those that see more than a flat patch, whose receptive fields look
    the same in another input. An input composed of ``n`` parts of others shares the ``n``-th part of them or more."""
    textured: PositiveFloat = 0.1
    """Least difference of two values of a receptive field that is not flat, relative to their range."""
    iterations: PositiveInt = 120
    """Conjugate-gradient iterations per Gauss–Newton step, for inputs that are too large for a Gram matrix."""
    largest_input: PositiveInt = 8192
    """Number of values of an input up to which the Jacobian is examined: its Gram matrix takes half a gigabyte."""
    search: SearchRules = SearchRules()
