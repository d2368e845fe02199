"""Data that would make an audit report false scores is refused."""

from dataclasses import replace

import pytest
import torch

from exhume.core.errors import DataError
from exhume.evaluation import evaluate
from exhume.evaluation.data_checks import check_data
from exhume.records import Dataset, Outcome, Reconstruction, Split
from tests.auditing.audited_networks import digits, trained


def with_inputs(train: torch.Tensor | None = None, holdout: torch.Tensor | None = None) -> Dataset:
    data = digits()
    given = {"train": train, "holdout": holdout}
    splits = {
        name: Split(inputs=inputs, labels=torch.zeros(len(inputs), dtype=torch.long))
        for name, inputs in given.items()
        if inputs is not None
    }
    return replace(data, **splits)


def test_data_in_the_units_of_the_network_passes() -> None:
    check_data(trained(), digits())
    check_data(trained(), with_inputs(holdout=digits().holdout.inputs[:0]))
    check_data(trained(), with_inputs(train=digits().train.inputs * (1 + 5e-5)))
    check_data(replace(trained(), bounds=None), with_inputs(train=digits().train.inputs * 255))


TRAIN, HELD_OUT = digits().train.inputs, digits().holdout.inputs
BAD = {
    "bytes": (with_inputs(train=TRAIN * 255), "training examples have values from 0 to 255, outside the bounds 0 to 1"),
    "centred": (with_inputs(holdout=2 * HELD_OUT - 1), "held-out examples have values from -1 to 1, outside"),
    "shape": (with_inputs(train=TRAIN.flatten(1)), r"training examples have shape \(64,\)"),
    "shape of the hold-out set": (with_inputs(holdout=HELD_OUT[..., :7]), "held-out examples have shape"),
    "NaN": (with_inputs(train=TRAIN * torch.nan), "training examples hold NaN"),
    "infinite": (with_inputs(holdout=HELD_OUT / 0), "held-out examples hold NaN or infinite"),
    "nothing": (with_inputs(train=TRAIN[:0]), "no training examples"),
    "same": (with_inputs(holdout=TRAIN), "8 of the 8 held-out examples are training examples too"),
    "half": (with_inputs(holdout=torch.cat([TRAIN[:4], HELD_OUT[:4]])), "4 of the 8 held-out examples"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_is_refused(name: str) -> None:
    data, sentence = BAD[name]
    with pytest.raises(DataError, match=sentence):
        check_data(trained(), data)
    found = Reconstruction(
        inputs=TRAIN[:2], certified=torch.tensor([True, False]), confidence=torch.ones(2), outcome=Outcome.PARTIAL
    )
    with pytest.raises(DataError, match=sentence):
        evaluate(found, data, victim=trained())
    if "outside" not in sentence and name != "shape":  # these need the network
        with pytest.raises(DataError):
            evaluate(found, data)


def test_a_few_records_that_occur_twice_are_allowed() -> None:
    check_data(trained(), with_inputs(holdout=torch.cat([TRAIN[:3], HELD_OUT[:5]])))


def test_negative_zero_is_zero() -> None:
    with pytest.raises(DataError, match="training examples too"):
        check_data(trained(), with_inputs(train=TRAIN * 0.0, holdout=TRAIN * -0.0))
