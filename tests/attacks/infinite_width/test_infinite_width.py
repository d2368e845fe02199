"""The attack on wide networks by their outputs: images come out, seeds fix the result, other networks are refused."""

from dataclasses import replace

import pytest
import torch

from exhume import MLP, ConvNet, Refusal, load, train
from exhume.attacks import InfiniteWidth
from exhume.core.errors import ExhumeError


def test_a_wide_network_reveals_images_by_its_outputs():
    data = load("digits", classes="odd-even", size=4, seed=0)
    victim = train(data, model=MLP(width=2048, depth=1), linearised=True, device="cpu")
    found = InfiniteWidth(candidates=4, rounds=2, steps=75, learning_rate=0.05).run(victim.view(), device="cpu")
    assert found.inputs.shape == (4, 1, 8, 8)
    assert found.diagnostics["explained"] > 0
    # Compare directions: the kernel of a network with few biases hardly determines lengths.
    directions, trained, strange = (
        torch.nn.functional.normalize(data.to_model(inputs).flatten(1), dim=1)
        for inputs in (found.inputs, data.train.inputs, data.holdout.inputs)
    )
    near, far = ((directions @ others.T).amax(0).mean() for others in (trained, strange))
    assert near > 0.75
    assert near > far + 0.15


def test_the_same_seed_finds_the_same():
    data = load("digits", classes="odd-even", size=4, seed=0)
    view = train(data, model=MLP(width=64, depth=1), linearised=True, device="cpu").view()
    first, second = (InfiniteWidth(candidates=4, rounds=2, steps=10).run(view, device="cpu") for _ in range(2))
    assert torch.equal(first.inputs, second.inputs)


def test_other_networks_are_refused():
    data = load("digits", classes="odd-even", size=4)
    view = train(data, model=ConvNet(channels=2, depth=1), steps=1, device="cpu").view()
    with pytest.raises(Refusal, match="architecture of an MLP"):
        InfiniteWidth(candidates=4).run(view)
    smooth = train(data, model=MLP(width=8, activation="tanh"), steps=1, device="cpu").view()
    with pytest.raises(Refusal, match="ReLU"):
        InfiniteWidth(candidates=4).run(smooth)
    good = train(data, model=MLP(width=8), steps=1, device="cpu").view()
    with pytest.raises(Refusal, match="no initial weights"):
        InfiniteWidth(candidates=4).run(replace(good, initial=None))
    with pytest.raises(Refusal, match="nothing was trained"):
        InfiniteWidth(candidates=4).run(replace(good, final=good.initial))
    with pytest.raises(ExhumeError, match="candidates should be greater than 0"):
        InfiniteWidth(candidates=0)
