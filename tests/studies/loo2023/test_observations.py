"""Statements of the paper about Figures 2 to 5: they can turn out false, and hold in the published results."""

from pathlib import Path

import pytest
import torch

from exhume.studies.grid import EARLY, LINEARISED, TEN_CLASSES
from exhume.studies.loo2023.observations import (
    describe_observations,
    error_follows_kernel_distance,
    linearised_is_better,
    more_classes_are_better,
    more_classes_change_the_kernel_less,
    smaller_is_easier,
    unaffected_by,
    wider_resolves_more,
)
from exhume.studies.study import read_result

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def make_row(size, width, good, variant="standard", *, distance=0.1, error=1.0):
    return {
        "size": size, "width": width, "good": good, "fine": good, "variant": variant, "kernel_distance": distance,
        "curve": torch.full((size,), error),
    }  # fmt: skip


def test_smaller_sets_are_easier_only_if_the_share_falls():
    easy = [make_row(10, 64, 10), make_row(100, 64, 20)]
    assert smaller_is_easier(easy).holds
    assert not smaller_is_easier(easy[:1]).holds, "one size shows nothing"
    hard = smaller_is_easier([make_row(10, 64, 1), make_row(100, 64, 20)])
    assert not hard.holds
    assert "this does not hold here (10 images 0.1, 100 images 0.2)" in hard.sentence
    assert describe_observations({"digits": [hard]}).startswith("digits: The paper finds that the smaller the set")


def test_wider_networks_resolve_more_only_if_every_step_rises():
    assert wider_resolves_more([make_row(10, 64, 1), make_row(10, 128, 1), make_row(10, 256, 3)]).holds
    assert not wider_resolves_more([make_row(10, 64, 1), make_row(10, 128, 4), make_row(10, 256, 3)]).holds


def test_variants_are_compared_with_standard_training():
    standard = make_row(10, 64, 5)
    assert linearised_is_better([standard, make_row(10, 64, 6, LINEARISED.name)]).holds
    assert not linearised_is_better([standard, make_row(10, 64, 5, LINEARISED.name)]).holds
    more_but_no_finer = make_row(10, 64, 6, LINEARISED.name) | {"fine": 5}
    assert not linearised_is_better([standard, more_but_no_finer]).holds
    assert more_classes_are_better([standard, make_row(10, 64, 6, TEN_CLASSES.name)]).holds
    assert not more_classes_are_better([standard, make_row(10, 64, 5, TEN_CLASSES.name)]).holds
    assert unaffected_by([standard, make_row(10, 64, 4, EARLY.name)], EARLY).holds
    assert not unaffected_by([standard, make_row(10, 64, 3, EARLY.name)], EARLY).holds


def test_error_follows_the_kernel_distance_only_if_both_rise():
    rising = [make_row(10, 64, 5, distance=0.1 * n, error=float(n)) for n in range(1, 6)]
    assert error_follows_kernel_distance(rising).values["rank correlation"] == pytest.approx(1.0)
    falling = [make_row(10, 64, 5, distance=0.1 * n, error=-float(n)) for n in range(1, 6)]
    assert not error_follows_kernel_distance(falling).holds
    ten = make_row(10, 64, 5, TEN_CLASSES.name, distance=0.05)
    assert more_classes_change_the_kernel_less([*rising, ten]).holds
    assert not more_classes_change_the_kernel_less([*rising, ten | {"kernel_distance": 9.0}]).holds


@pytest.mark.parametrize("observe", [smaller_is_easier, wider_resolves_more, linearised_is_better])
def test_the_published_results_show_the_observations(observe):
    result = read_result(RESULTS / "figure2-mnist")
    assert result["preset"] == "cpu"
    rows = result["numbers"]["rows"]
    assert observe(rows).holds, observe(rows).sentence
    assert all(row["null_good"] == 0 for row in rows)
