"""The observations of Buzaglo et al. (2023) about what makes networks reveal more, each decided on our own numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Trend:
    """An observation: one case of a study reveals a larger share of its training images than another."""

    claim: str
    less: str
    """Label of the case that should reveal less."""
    more: str
    """Label of the case that should reveal more."""

    def judge(self, rows: Sequence[dict[str, Any]]) -> str:
        """Return the claim and what the rows say of it; undecided unless every seed has the same sign.

        >>> trend = Trend(claim="Wider networks reveal more.", less="40", more="80")
        >>> row = {"seed": 0, "training_size": 20}
        >>> rows = [row | {"label": "40", "recovered": 5}, row | {"label": "80", "recovered": 9}]
        >>> trend.judge(rows)
        'Wider networks reveal more. True here: 45 % of the training images at 80, 25 % at 40.'
        """
        shares = [
            {row["seed"]: row["recovered"] / row["training_size"] for row in rows if row["label"] == label}
            for label in (self.less, self.more)
        ]
        less, more = shares
        seeds = sorted(less.keys() & more.keys())
        if not seeds:
            return f"{self.claim} Not measured."
        differences = [more[seed] - less[seed] for seed in seeds]
        verdict = "Undecided here"
        if all(difference > 0 for difference in differences):
            verdict = "True here"
        elif all(difference < 0 for difference in differences):
            verdict = "Contradicted here"
        few, many = (100 * sum(own[seed] for seed in seeds) / len(seeds) for own in shares)
        return (
            f"{self.claim} {verdict}: {many:.0f} % of the training images at {self.more}, {few:.0f} % at {self.less}."
        )


TRENDS = {
    "weight-decay": Trend(claim="Weight decay reveals more.", less="0", more="0.001"),
    "decay-binary": Trend(claim="Weight decay reveals more, with two classes.", less="0", more="0.002"),
    "classes": Trend(claim="More classes reveal more.", less="2", more="10"),
    "width": Trend(claim="More units per training image reveal more.", less="40", more="640"),
    "size": Trend(claim="Fewer training images for the same units reveal more.", less="50", more="10"),
    "loss": Trend(claim="Regression reveals its images, too, if there is weight decay.", less="mse", more="mse, decay"),
}
"""The observations by study (sections 4 to 6 of the paper); shares are those recovered at 1 % false positives."""
