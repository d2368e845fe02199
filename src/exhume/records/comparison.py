"""Comparison of candidates with examples, and the thresholds of a recovery."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from exhume.records.record import Record

GOOD = 0.01
"""Mean squared error per value below which a recovery shows the training input: the right image, slightly blurred."""
FINE = 0.001
"""Mean squared error per value below which the eye cannot distinguish the two."""
EXACT = 0.02
"""Largest error of any value of an exact recovery: about five of 255 grey levels."""
SIMILAR = 0.4
"""Structural similarity above which Buzaglo et al. (2023) count a reconstruction as good."""
CERTIFIED_WITHIN = 0.05
"""Largest error of any value up to which a certificate counts as true.

A certificate claims that *this* input was trained on. Beyond a twentieth of the value range (for tables: of a column's
standard deviation) the claim is about another input. Rounding of the released weights causes far smaller errors.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison(Record):
    """A reconstruction compared with a set of examples: the training set or the hold-out set.

    Distances are squared and summed over values, in units of the value range (tables: a column's standard deviation).
    """

    examples: Float[Tensor, "example ..."]
    """The examples themselves, in pixel units."""
    labels: Int[Tensor, " example"]
    pairs: Int[Tensor, "pair 2"]
    """Indices of matched candidates and examples, nearest pair first."""
    curve: Float[Tensor, " pair"]
    """The reconstruction curve: squared distances of the matched pairs, ascending."""
    ssim: Float[Tensor, " pair"]
    """Structural similarity; NaN where inputs are not images."""
    ncc: Float[Tensor, " pair"]
    psnr: Float[Tensor, " pair"]
    max_error: Float[Tensor, " pair"]
    """Largest error of any value per pair."""
    example_distances: Float[Tensor, " example"]
    """Distance from each example to the nearest candidate; infinite when there is none."""
    nearest_examples: Int[Tensor, " candidate"]
    """Index of the nearest example per candidate; -1 for a candidate that is not finite."""
    nearest_distances: Float[Tensor, " candidate"]
    nearest_errors: Float[Tensor, " candidate"]
    """Largest error of any value per candidate, against its nearest example."""

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def mean_squares(self) -> Float[Tensor, " pair"]:
        """The curve as a mean over values instead of a sum."""
        return self.curve / max(1, self.examples[:1].numel())

    @property
    def good(self) -> int:
        """The number of examples matched within a mean square of :data:`GOOD`."""
        return int((self.mean_squares < GOOD).sum())

    @property
    def fine(self) -> int:
        """The number of examples matched within a mean square of :data:`FINE`."""
        return int((self.mean_squares < FINE).sum())

    @property
    def exact(self) -> int:
        """The number of examples matched with every value within :data:`EXACT`."""
        return int((self.max_error < EXACT).sum())

    @property
    def similar(self) -> int | None:
        """The number of examples matched with a structural similarity above :data:`SIMILAR`; None without images."""
        return None if bool(self.ssim.isnan().any()) else int((self.ssim > SIMILAR).sum())
