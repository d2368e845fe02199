"""A trend is true or contradicted only if every seed agrees, and compares cases that exist."""

import pytest

from exhume.studies.buzaglo2023.studies import AXES
from exhume.studies.buzaglo2023.trends import TRENDS, Trend

TREND = Trend(claim="More is more.", less="few", more="many")


def rows_of(few, many):
    return [
        {"label": label, "seed": seed, "recovered": count, "training_size": size}
        for label, size, counts in (("few", 10, few), ("many", 20, many))
        for seed, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("few", "many", "verdict"),
    [
        ((1, 2), (4, 6), "True here: 25 % of the training images at many, 15 % at few."),
        ((9, 8), (4, 6), "Contradicted here: 25 % of the training images at many"),
        ((1, 8), (4, 6), "Undecided here"),
        ((2,), (4,), "Undecided here"),  # the same share of twice as many images
        ((), (4,), "Not measured."),
    ],
)
def test_shares_are_compared_seed_by_seed(few, many, verdict):
    assert TREND.judge(rows_of(few, many)).startswith(f"More is more. {verdict}")


@pytest.mark.parametrize("name", TRENDS)
@pytest.mark.parametrize("preset", ["cpu", "gpu"])
def test_a_trend_compares_cases_of_its_study(name, preset):
    labels = {case.label for case in AXES[name][1][preset].cases}
    assert {TRENDS[name].less, TRENDS[name].more} <= labels
