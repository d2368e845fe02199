"""The interface of distillations: distilled examples in pixel units, and refusals."""

from dataclasses import replace

import pytest
import torch

from exhume import Split
from exhume.core.errors import ExhumeError
from exhume.distillation import KIP, RKIPFinite, distil
from exhume.distillation.distillation import make_split
from tests.distillation.distilled_digits import load_digits


def test_network_inputs_become_pixels_and_targets_become_labels():
    data = load_digits(20)
    inputs = data.to_model(data.train.inputs).flatten(1)
    targets = torch.linspace(-1, 1, 20)[:, None]
    split = make_split(data, inputs, targets, soft=True)
    assert torch.allclose(split.inputs, data.train.inputs, atol=1e-6)
    assert split.labels.tolist() == [0] * 10 + [1] * 10
    assert torch.equal(split.targets, targets)
    assert make_split(data, inputs, targets, soft=False).targets is None


def test_nothing_to_distil_is_refused():
    data = load_digits()
    empty = replace(data, train=Split(inputs=data.train.inputs[:0], labels=data.train.labels[:0]))
    with pytest.raises(ExhumeError, match="no training examples"):
        distil(empty, KIP())


@pytest.mark.parametrize("method", [KIP, RKIPFinite])
def test_no_examples_are_refused(method):
    with pytest.raises(ExhumeError, match="size should be greater than 0"):
        method(size=0)
