"""What users give a view: numbers, lists and arrays are converted, everything else is refused in one sentence."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.records import AttackerView
from tests.records.made_up import make_network


def held_by(**given: Any) -> AttackerView:
    """Return a view as users make it: without the type checks of the tests, which come before those of the view."""
    model, view = make_network(), object.__new__(AttackerView)
    usual = {field.name: None for field in dataclasses.fields(AttackerView)}
    usual |= {"model": model, "final": model.state_dict(), "input_shape": (1, 2, 2), "bounds": (0.0, 1.0)}
    for name, value in (usual | {"more_gradients": (), "linearised": False, "training": {}} | given).items():
        object.__setattr__(view, name, value)
    view.__post_init__()
    return view


@pytest.mark.parametrize(
    "given", [0.25, 1, np.float32(0.25), np.full((2, 2), 0.25), [[0.25]], torch.full((1, 1, 1), 0.25)], ids=repr
)
def test_an_offset_is_a_number_or_an_array(given: Any) -> None:
    view = held_by(offset=given)
    pixels = torch.full((3, 1, 2, 2), 0.5)
    expected = pixels - torch.as_tensor(given, dtype=torch.float32)
    torch.testing.assert_close(view.to_model(pixels), expected)
    torch.testing.assert_close(view.to("cpu").to_pixels(expected), pixels)


def test_lists_and_numbers_stand_for_tuples() -> None:
    view = held_by(input_shape=[1, 2, 2], bounds=[0, 1], more_gradients=[])
    assert (view.input_shape, view.bounds, view.more_gradients) == ((1, 2, 2), (0, 1), ())
    assert held_by(input_shape=4).input_shape == (4,)
    assert held_by(bounds=torch.tensor([-1.0, 2.0])).bounds == (-1.0, 2.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offset": "0.45"}, "offset is a number or a tensor .* not a str"),
        ({"offset": torch.zeros(3, 3)}, r"offset has shape \(3, 3\), which does not fit inputs of shape \(1, 2, 2\)"),
        (
            {"gradient": [torch.zeros(2, 4)]},
            "gradient must be a mapping from parameter names to tensors, not a list",
        ),
        ({"gradient": {"1.weight": [0.0]}}, "gradient must map .* not '1.weight' to a list"),
        ({"gradient": {0: torch.zeros(2, 4)}}, "gradient must map parameter names to tensors, not 0"),
        ({"final": "model.pt"}, "final weights must be a mapping .* not a str"),
        ({"final": None}, "final weights must be a mapping .* not a NoneType"),
        ({"final": make_network()}, r"not a Sequential; give its state_dict\(\)"),
        ({"initial": [1.0]}, "initial weights must be a mapping .* not a list"),
        ({"optimiser_state": [torch.zeros(2)]}, r"An optimiser's state is PyTorch's optimizer.state_dict\(\)"),
        ({"optimiser_state": torch.optim.SGD(make_network().parameters())}, "An optimiser's state is PyTorch's"),
        ({"more_gradients": [{"1.weight": torch.zeros(2, 4)}]}, r"GradientAt\(weights=…, gradient=…\)"),
        ({"more_gradients": 3}, r"GradientAt\(weights=…, gradient=…\)"),
        ({"bounds": 1.0}, r"two finite numbers, such as \(0, 1\), not 1.0"),
        ({"bounds": (0, 1, 2)}, "two finite numbers"),
        ({"bounds": ("low", "high")}, "two finite numbers"),
        ({"bounds": (0.0, float("inf"))}, "two finite numbers"),
        ({"input_shape": "1,2,2"}, "shape of an input is whole numbers"),
        ({"input_shape": (1, 2.0)}, "shape of an input is whole numbers"),
        ({"input_shape": None}, "shape of an input is whole numbers"),
        ({"model": "network"}, "torch.nn.Module, not a str"),
        ({"training": ["sgd"]}, "known about the training is a mapping .* not a list"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_of_another_type_are_refused_in_one_sentence(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ExhumeError, match=message) as raised:
        held_by(**given)
    assert str(raised.value).endswith(".")
