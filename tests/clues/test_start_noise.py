"""Which layers can tell: noise of a start is measured as planted, and sums are weighed as slow twins weigh them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import exhume
from exhume.attacks import MaxMargin
from exhume.attacks.stationarity.multipliers import FreeMultipliers
from exhume.attacks.stationarity.problem import KktProblem
from exhume.clues.search_space import SearchSpace
from exhume.clues.start_noise import start_noise, upper_layers_look_random
from exhume.core.errors import ExhumeError
from exhume.records import AttackerView
from exhume.training.recipes import weight_decay_recipe


@settings(max_examples=25)
@given(st.integers(80, 160), st.integers(80, 160), st.floats(0.05, 0.95), st.integers(0, 99))
def test_the_noise_of_a_start_is_measured_as_it_was_planted(rows, columns, share, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, columns, generator=generator)
    low_rank = torch.randn(rows, 3, generator=generator) @ torch.randn(3, columns, generator=generator)
    matrix = share**0.5 * noise / noise.norm() + (1 - share) ** 0.5 * low_rank / low_rank.norm()
    assert start_noise(matrix) == pytest.approx(share, rel=0.4)


def test_small_matrices_and_biases_tell_nothing():
    assert start_noise(torch.randn(100)) is None
    assert start_noise(torch.randn(100, 2)) is None


def test_the_first_layer_alone_counts_where_training_left_the_start_of_the_others():
    data = exhume.load("digits", classes="all", size=20, test=0)
    for decay, alone in ((0.0, True), (3e-3, False)):
        victim = exhume.train(
            data, device="cpu", **weight_decay_recipe(loss="ce", weight_decay=decay, width=80, steps=1000)
        )
        assert upper_layers_look_random(list(victim.final), victim.final) is alone
        attack = MaxMargin(trials=1, restarts=1, steps=10)
        found = attack.run(replace(victim.view(), initial=None), device="cpu")
        assert found.diagnostics["upper_layers"] == (0.0 if alone else 1.0)


@pytest.mark.parametrize("model", [exhume.MLP(width=9, bias="first"), exhume.ConvNet(channels=4, depth=1, bias=False)])
def test_layers_above_the_first_count_as_much_as_they_are_told_to(model):
    module = model.build((1, 4, 4), 2, torch.Generator().manual_seed(0))
    final = {name: weight.double() for name, weight in module.state_dict().items()}
    view = AttackerView(model=module, final=final, input_shape=(1, 4, 4))
    free = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    raw = torch.ones(3, 2, dtype=torch.float64)
    values = {}
    for upper in (0.0, 0.25, 1.0):
        problem = KktProblem.of(view, SearchSpace(16), FreeMultipliers(), upper_layers=upper, dtype=torch.float64)
        value, (slope, _) = problem.objective(free, raw, torch.tensor(5.0), torch.tensor(0.0))
        values[upper] = torch.cat([value[None], slope.flatten()])
    torch.testing.assert_close(values[0.25], 0.75 * values[0.0] + 0.25 * values[1.0])


def test_a_negative_weight_is_refused():
    with pytest.raises(ExhumeError, match="upper_layers of at least 0"):
        MaxMargin(upper_layers=-1.0)
