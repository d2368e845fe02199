"""Weights released with noise and in shorter formats."""

import torch

from exhume.models.mlp import MLP
from exhume.records import AttackerView
from exhume.studies.released import add_noise, quantise, round_weights


def make_view():
    model = MLP(width=8).build((4,), 1, torch.Generator().manual_seed(0))
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, initial=weights, final=weights, input_shape=(4,))


def test_weights_are_released_with_noise_and_in_shorter_formats():
    plain = make_view()
    weight = plain.final["layer2.weight"]
    noisy = add_noise(plain, 0.1, seed=0).final["layer2.weight"]
    assert 0.07 < (noisy - weight).std() < 0.13
    assert torch.equal(add_noise(plain, 0.1, seed=0).final["layer2.weight"], noisy)
    half = round_weights(plain, torch.bfloat16).final["layer2.weight"]
    assert half.dtype == weight.dtype
    assert torch.equal(half, weight.bfloat16().float())
    whole = quantise(plain).final["layer2.weight"]
    assert len(whole.unique()) <= 255
    assert (whole - weight).abs().max() <= 0.51 * weight.abs().max() / 127
    assert torch.equal(plain.initial["layer2.weight"], quantise(plain).initial["layer2.weight"])
