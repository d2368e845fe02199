"""JSON values: every value becomes one that JSON can hold."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.core.json_values import to_json_value

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(values)
def test_every_value_survives_json(value):
    converted = to_json_value(value)
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([[1.5, math.nan]]), [[1.5, None]]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (True, True),
        ((1, 2), [1, 2]),
        ({1: -math.inf}, {"1": None}),
        (torch.float32, "torch.float32"),
    ],
    ids=str,
)
def test_kinds_of_values(value, expected):
    converted = to_json_value(value)
    assert converted == expected
    assert type(converted) is type(expected)
