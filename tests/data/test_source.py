"""Examples of a source: pixel units and standardised tables."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.data.source import Examples, standardise_columns, to_unit


def test_bytes_become_floats_in_the_unit_range_and_floats_stay() -> None:
    every_byte = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_unit(every_byte) * 255, torch.arange(256.0))
    assert torch.equal(to_unit(torch.tensor([-3.0, 0.5], dtype=torch.float64)), torch.tensor([-3.0, 0.5]))


def test_chosen_examples_are_taken_in_order() -> None:
    examples = Examples(inputs=torch.tensor([[0], [51], [255]], dtype=torch.uint8), labels=torch.tensor([0, 1, 0]))
    assert len(examples) == 3
    assert torch.allclose(examples.take(torch.tensor([2, 0, 1])), torch.tensor([[1.0], [0.0], [0.2]]))


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=2), min_size=2, max_size=20))
def test_standardised_columns_have_mean_zero_and_deviation_one_or_are_zero(rows: list[list[float]]) -> None:
    table = standardise_columns(torch.tensor(rows, dtype=torch.float64))
    assert torch.isfinite(table).all()
    assert table.mean(dim=0).abs().max() < 1e-3
    for deviation in table.std(dim=0, correction=0).tolist():
        assert deviation == 0 or abs(deviation - 1) < 1e-3


def test_a_test_table_is_standardised_like_the_training_table() -> None:
    train, test = torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0]])
    assert standardise_columns(test, like=train).tolist() == [[3.0]]
