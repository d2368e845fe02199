"""Step sizes: the sharpness is the largest curvature, and the learning rate stays below it."""

import pytest
import torch

from exhume.training import Training, train
from exhume.training.losses import LOSSES
from exhume.training.step_size import fast_lr, sharpness
from tests.training.digit_victims import BINARY, SMALL, TEN


def test_sharpness_is_the_largest_curvature():
    network = SMALL.build((1, 8, 8), 1, torch.Generator().manual_seed(0)).double()
    inputs = BINARY.to_model(BINARY.train.inputs.double())
    outputs = network(inputs)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(f, network.parameters(), retain_graph=True)])
        for f in outputs
    ]
    jacobian = torch.stack(rows)
    exact = torch.linalg.eigvalsh(jacobian @ jacobian.T)[-1].item() / len(inputs)
    assert sharpness(network, inputs, LOSSES["mse"]) == pytest.approx(exact, rel=0.02)
    assert fast_lr(network, inputs, Training()) == pytest.approx(min(0.3 / exact, 0.1), rel=0.02)


@pytest.mark.parametrize("loss", ["mse", "huber", "bce", "ce"])
def test_a_step_of_the_fast_learning_rate_lowers_every_loss(loss):
    victim = train(TEN if loss == "ce" else BINARY, model=SMALL, device="cpu", loss=loss, steps=1, momentum=0.0)
    start = train(TEN if loss == "ce" else BINARY, model=SMALL, device="cpu", loss=loss, steps=0)
    assert victim.result["loss"] < start.result["loss"]


def test_weight_decay_and_adam_change_the_learning_rate():
    network = SMALL.build((1, 8, 8), 1, torch.Generator().manual_seed(0))
    inputs = BINARY.to_model(BINARY.train.inputs)
    assert fast_lr(network, inputs, Training(weight_decay=1e6)) < fast_lr(network, inputs, Training())
    assert fast_lr(network, inputs, Training(optimiser="adam")) == 1e-3
