"""The box of valid inputs: its penalty is zero inside and grows with the square outside."""

import torch

from exhume.models.mlp import MLP
from exhume.optimise.box import Box
from exhume.records import AttackerView

DOUBLE = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def box():
    return Box(torch.full((4,), -0.5, dtype=DOUBLE), torch.full((4,), 0.7, dtype=DOUBLE))


def test_inside_there_is_no_penalty():
    inputs = torch.rand(3, 4, generator=torch.Generator().manual_seed(0), dtype=DOUBLE) - 0.5
    value, gradient = box().penalty(inputs.clamp(-0.5, 0.7), 2.0)
    assert float(value) == 0
    assert not gradient.any()


def test_the_gradient_is_that_of_autograd():
    inputs = (2 * random(3, 4)).requires_grad_()
    value, gradient = box().penalty(inputs, 0.3)
    torch.testing.assert_close(gradient, torch.autograd.grad(value, inputs)[0])


def test_boxes_side_by_side_are_each_as_alone():
    boxes = [Box(random(4, seed=run) - 2, random(4, seed=run) + 0.1) for run in range(3)]
    inputs = 2 * random(3, 5, 4, seed=9)
    values, gradients = Box.side_by_side(boxes).penalty(inputs, 0.3)
    for run, alone in enumerate(boxes):
        value, gradient = alone.penalty(inputs[run], 0.3)
        torch.testing.assert_close(values[run], value)
        torch.testing.assert_close(gradients[run], gradient)


def test_a_view_without_bounds_has_no_box():
    model = MLP(width=3, depth=1).build((4,), 1)
    view = AttackerView(model=model, final=dict(model.state_dict()), input_shape=(4,), bounds=None)
    assert Box.of(view, DOUBLE) is None
    bounded = AttackerView(model=model, final=dict(model.state_dict()), input_shape=(4,), bounds=(0.0, 1.0))
    found = Box.of(bounded, DOUBLE)
    assert found is not None
    assert found.lowest.shape == found.highest.shape == (4,)
    assert found.lowest.dtype == DOUBLE
