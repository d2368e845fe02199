"""Gradient sums of any module are sums of gradients, whether or not its ReLUs can be replaced."""

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.gradient_sums.module import ModuleSums
from exhume.gradient_sums.sums import gradient_sums
from exhume.models.convnet import ConvNet
from tests.gradient_sums.networks import (
    DOUBLE,
    SHAPE,
    Functional,
    Untraceable,
    assert_close,
    inputs_and_duals,
    random,
    slow_sum,
    view_of,
)


@pytest.mark.parametrize(
    "model", [Functional(), Untraceable(), ConvNet(depth=1).build(SHAPE, 2)], ids=["calls", "untraceable", "conv"]
)
def test_sums_are_sums_of_gradients(model):
    view = view_of(model)
    inputs, duals = inputs_and_duals(points=1)
    sums = gradient_sums(view, [view.final], DOUBLE)
    assert isinstance(sums, ModuleSums)
    fast = dict(zip(sums.names, sums(inputs, duals)[0], strict=True))
    slow = slow_sum(view.model, view.final, inputs, duals[0])
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], rtol=1e-10, atol=1e-12)


def test_outputs_are_those_of_the_model():
    view = view_of(Functional())
    inputs, _ = inputs_and_duals()
    outputs = ModuleSums.at(view, [view.initial, view.final], DOUBLE).outputs(inputs)
    torch.testing.assert_close(outputs[1], view.model(inputs.reshape(-1, *SHAPE)))


@pytest.mark.parametrize("sharpness", [None, (7.0,), (1.0, 30.0)])
def test_runs_are_each_as_alone(sharpness):
    view = view_of(ConvNet(depth=1).build(SHAPE, 2))
    sums = ModuleSums.at(view, [view.initial, view.final], DOUBLE)
    inputs, duals = random(2, 4, 6), random(2, 2, 4, 2, seed=1)
    each = [None] * 2 if sharpness is None else [torch.tensor(one, dtype=DOUBLE) for one in (2 * sharpness)[:2]]
    whole = None if sharpness is None else each[0] if len(sharpness) == 1 else torch.stack(each)
    target = tuple(view.final[name] for name in sums.names)
    value, to_inputs, to_duals = sums.squared_residual(target, inputs, duals, whole)
    for run in range(2):
        alone = sums.squared_residual(target, inputs[run], duals[:, run], each[run])
        assert_close((value[run], to_inputs[run], to_duals[:, run]), alone)
        torch.testing.assert_close(sums.outputs(inputs)[:, run], sums.outputs(inputs[run]))


def test_features_of_dense_networks_alone_are_omitted_or_refused():
    view = view_of(Functional())
    sums = ModuleSums.at(view, [view.final], DOUBLE)
    assert not sums.takes_coordinates
    assert sums.rounded(torch.bfloat16) is sums.unscaled() is sums
    with pytest.raises(ExhumeError, match="Only dense networks fit side by side"):
        ModuleSums.side_by_side([sums, sums])
