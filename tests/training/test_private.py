"""Private training: the budget decides the noise, and unsupported networks are refused."""

import importlib.util

import pytest
import torch

from exhume import MLP, load
from exhume.core.errors import ExhumeError
from exhume.training import accuracy
from exhume.training.private import PrivateTraining, train_privately

# Without importing it, which would delay the collection of every test by seconds.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opacus") is None, reason="private training needs the extra 'private'"
)


@pytest.fixture(scope="module")
def digits():
    return load("digits", classes="odd-even", size=100, seed=0)


def test_a_smaller_budget_needs_more_noise_and_lowers_accuracy(digits):
    strict, loose = (
        train_privately(digits, PrivateTraining(epsilon=epsilon, steps=30), model=MLP(width=64), device="cpu")
        for epsilon in (1.0, 1000.0)
    )
    assert strict.training["noise_multiplier"] > 5 * loose.training["noise_multiplier"]
    assert strict.training["delta"] == pytest.approx(0.001)
    assert accuracy(loose, digits.test) > max(0.7, accuracy(strict, digits.test))


def test_the_same_seed_trains_the_same_network(digits):
    settings = PrivateTraining(epsilon=8.0, steps=2)
    first, second = (train_privately(digits, settings, model=MLP(width=16), device="cpu") for _ in range(2))
    assert all(torch.equal(first.final[name], second.final[name]) for name in first.final)
    assert not torch.equal(first.initial["layer1.weight"], first.final["layer1.weight"])
    assert first.view().training.optimiser == "dp-sgd"


def test_gradients_are_clipped_before_noise(digits):
    huge = PrivateTraining(epsilon=1e6, delta=0.4, steps=1, lr=1.0, momentum=0.0, clip=1e-3)
    victim = train_privately(digits, huge, model=MLP(width=16), device="cpu")
    moved = sum(float((victim.final[n] - victim.initial[n]).square().sum()) for n in victim.final) ** 0.5
    assert moved < 2e-3  # a mean of gradients no longer than the clip, and hardly any noise


def test_layers_that_cannot_be_clipped_are_refused(digits):
    with pytest.raises(ExhumeError, match="cannot clip"):
        train_privately(digits, PrivateTraining(epsilon=1.0), model=MLP(width=8, parameterisation="ntk"), device="cpu")
    with pytest.raises(ExhumeError, match="epsilon should be greater than 0"):
        PrivateTraining(epsilon=0.0)
