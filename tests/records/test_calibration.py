"""Calibrations: what audit.json says about them."""

import pytest
import torch

from exhume.records import Calibration, Level
from exhume.records.calibration import RANKS, describe_ranks


def make_calibration(recovered: int = 2) -> Calibration:
    levels = tuple(
        Level(fpr=fpr, recovered=recovered, holdout_recovered=1, bound=0.2, chance=0.5) for fpr in (0.01, 0.1)
    )
    return Calibration(
        scores=torch.tensor([0.1, 0.2, float("inf"), 0.3]),
        p_values=torch.tensor([0.05, 0.1, 1.0, 0.2]),
        false_positive_rates=torch.tensor([0.0, 1.0]),
        true_positive_rates=torch.tensor([0.0, 1.0]),
        auc=0.75,
        null_size=19,
        levels=levels,
    )


def test_every_key_is_there_with_and_without_a_calibration() -> None:
    assert tuple(describe_ranks(None)) == tuple(describe_ranks(make_calibration())) == RANKS
    assert set(describe_ranks(None).values()) == {None}


def test_counts_are_given_by_rate_and_as_a_share_of_the_training_set() -> None:
    ranks = describe_ranks(make_calibration(recovered=3))
    assert ranks["recovered_at_fpr"] == {"0.01": 3, "0.1": 3}
    assert ranks["tpr_at_fpr"] == {"0.01": 0.75, "0.1": 0.75}
    assert ranks["holdout_recovered_at_fpr"]["0.1"] == 1


def test_the_smallest_rate_is_that_of_one_example_in_the_null() -> None:
    assert make_calibration().smallest_fpr == pytest.approx(0.05)


def test_a_level_is_found_by_its_rate() -> None:
    assert make_calibration().level(0.1).fpr == 0.1
    with pytest.raises(StopIteration):
        make_calibration().level(0.5)
