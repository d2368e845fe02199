"""Changes before release: what they do to final weights, and that they touch nothing else."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from exhume.models.mlp import MLP
from exhume.records import AttackerView
from exhume.training.release import (
    add_noise,
    add_relative_noise,
    drop_optimiser_state,
    quantise_weights,
    round_weights,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def view():
    model = MLP(width=40).build((30,), 1, seeded())
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, initial=weights, final=weights, input_shape=(30,))


CHANGES = {
    "rounding": lambda view: round_weights(view, torch.float16),
    "eight bits": quantise_weights,
    "noise": lambda view: add_noise(view, 0.1, seeded()),
    "relative noise": lambda view: add_relative_noise(view, 0.1, seeded()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_alters_final_weights_alone(view, change):
    changed = change(view)
    assert changed.initial is view.initial
    for name, weight in view.final.items():
        assert changed.final[name].dtype == weight.dtype
    assert not torch.equal(changed.final["layer2.weight"], view.final["layer2.weight"])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_integer_buffers_stay_as_they_are(change):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model[2].num_batches_tracked.fill_(7)
    view = AttackerView(model=model, final=dict(model.state_dict()), input_shape=(4,))
    assert int(change(view).final["2.num_batches_tracked"]) == 7


def test_noise_has_the_same_spread_in_every_tensor(view):
    noisy = add_noise(view, 0.1, seeded())
    for name in ("layer1.weight", "layer2.weight"):
        assert 0.09 < (noisy.final[name] - view.final[name]).std() < 0.11


def test_relative_noise_grows_with_the_weights_of_each_tensor(view):
    larger = replace(view, final={name: 10 * weight for name, weight in view.final.items()})
    for each in (view, larger):
        noisy = add_relative_noise(each, 0.1, seeded())
        for name in ("layer1.weight", "layer2.weight"):
            size = each.final[name].square().mean().sqrt()
            assert 0.09 < (noisy.final[name] - each.final[name]).std() / size < 0.11


def test_a_seed_fixes_the_noise(view):
    once, again, other = (add_noise(view, 0.1, seeded(seed)).final["layer1.bias"] for seed in (0, 0, 1))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_rounding_keeps_what_the_shorter_format_holds(view):
    weight = view.final["layer2.weight"]
    assert torch.equal(round_weights(view, torch.bfloat16).final["layer2.weight"], weight.bfloat16().float())


def test_eight_bits_have_at_most_255_levels_half_a_step_away(view):
    weight = view.final["layer2.weight"]
    rounded = quantise_weights(view).final["layer2.weight"]
    assert len(rounded.unique()) <= 255
    assert (rounded - weight).abs().max() <= 0.51 * weight.abs().max() / 127


def test_a_tensor_of_zeros_survives_quantisation(view):
    zeros = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
    assert all(not weight.any() for weight in quantise_weights(replace(view, final=zeros)).final.values())


def test_the_optimisers_state_is_dropped_and_nothing_else(view):
    held = replace(view, optimiser_state=view.final)
    assert drop_optimiser_state(held).optimiser_state is None
    assert drop_optimiser_state(held) == view
