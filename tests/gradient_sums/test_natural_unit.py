"""The natural unit of duals: exact where gradients are orthogonal and of one norm."""

import pytest
import torch
from torch import nn

from exhume.gradient_sums.natural_unit import natural_unit
from exhume.gradient_sums.sums import gradient_sums
from exhume.records import AttackerView
from tests.gradient_sums.networks import DOUBLE, build, random, sums_and_target, view_of


def test_orthogonal_gradients_add_up_to_the_target():
    model = nn.Linear(6, 1, bias=False).double()
    view = AttackerView(model=model, final=dict(model.state_dict()), input_shape=(6,))
    sums = gradient_sums(view, [view.final], DOUBLE)
    inputs = 3 * torch.eye(6, dtype=DOUBLE)[:4]  # of a linear network the inputs are the gradients
    target = sums(inputs, torch.full((1, 4, 1), 0.7, dtype=DOUBLE))[0]
    square = float(sum(part.square().sum() for part in target))
    unit = natural_unit(sums, inputs, points=1, outputs=1, target_square=square, gradients=4)
    assert unit == pytest.approx(0.7)


def test_it_scales_with_the_target_and_the_number_of_gradients():
    sums, _ = sums_and_target(view_of(build(width=7)))

    def unit(square, gradients):
        return natural_unit(sums, random(5, 6), points=2, outputs=2, target_square=square, gradients=gradients)

    assert unit(4.0, 10) == pytest.approx(2 * unit(1.0, 10))
    assert unit(1.0, 40) == pytest.approx(unit(1.0, 10) / 2)


def test_gradients_that_vanish_have_no_unit():
    view = view_of(build(width=7, bias="none"))
    zeros = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
    sums = gradient_sums(view, [zeros], DOUBLE)
    assert natural_unit(sums, random(3, 6), points=1, outputs=2, target_square=1.0, gradients=3) is None
