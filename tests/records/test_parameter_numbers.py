"""Numbers of parameters in an optimiser's state, matched with names by groups, order and shape."""

import itertools

import pytest
import torch
from torch import nn

from exhume.core.errors import WeightsError
from exhume.records.parameter_numbers import match_parameters


def build(widths: list[int]) -> nn.Module:
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*[module for layer in layers for module in (layer, nn.ReLU())])


def match(model: nn.Module, groups: list[list[str]], missing: tuple[str, ...] = ()) -> dict[str, str]:
    """Number parameters as PyTorch does and return the name found for each true one."""
    every = dict(model.named_parameters())
    order = [name for group in groups for name in group]
    numbers, at = [], 0
    for group in groups:
        numbers.append(list(range(at, at + len(group))))
        at += len(group)
    shapes = {number: every[name].shape for number, name in enumerate(order) if name not in missing}
    return {order[number]: name for number, name in match_parameters(model, numbers, shapes).items()}


def test_one_group_of_all_parameters_is_in_the_order_of_the_model() -> None:
    model = build([4, 5, 5, 5, 2])
    names = [name for name, _ in model.named_parameters()]
    assert match(model, [names]) == {name: name for name in names}
    assert match(model, [names], missing=("2.weight",)) == {name: name for name in names if name != "2.weight"}


def test_weights_and_biases_in_separate_groups_are_told_apart() -> None:
    model = build([4, 5, 5, 5, 2])
    names = [name for name, _ in model.named_parameters()]
    groups = [[n for n in names if n.endswith("weight")], [n for n in names if n.endswith("bias")]]
    assert match(model, groups) == {name: name for name in names}


def test_layers_in_separate_groups_are_in_the_order_of_the_model() -> None:
    model = build([4, 5, 5, 5, 2])
    names = [name for name, _ in model.named_parameters()]
    assert match(model, [names[:4], names[4:]]) == {name: name for name in names}


def test_frozen_layers_are_left_out_where_shapes_or_flags_tell() -> None:
    model = build([4, 5, 6, 2])
    assert match(model, [["2.weight", "2.bias", "4.weight", "4.bias"]]).keys() == {
        "2.weight", "2.bias", "4.weight", "4.bias",
    }  # fmt: skip
    alike = build([5, 5, 5, 5])
    last = ["4.weight", "4.bias"]
    with pytest.raises(WeightsError, match="in several ways"):
        match(alike, [last])
    for name, weight in alike.named_parameters():
        weight.requires_grad_(name in last)
    assert match(alike, [last]) == {name: name for name in last}


def test_a_state_of_other_shapes_is_refused() -> None:
    with pytest.raises(WeightsError, match="does not belong to this model"):
        match_parameters(build([4, 5]), [[0]], {0: torch.Size([9, 9])})


def test_a_hostile_number_of_groups_ends() -> None:
    model = build([5] * 12)
    groups = [[number] for number in range(12)]
    shapes = {number: torch.Size([5, 5]) for number in range(0, 12, 2)} | {9: torch.Size([7])}
    with pytest.raises(WeightsError):
        match_parameters(model, groups, shapes)
