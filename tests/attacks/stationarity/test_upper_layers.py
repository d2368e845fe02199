"""The weight of layers above the first in the objective: chosen by their random start, and linear in the setting."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import MaxMargin
from exhume.attacks.stationarity.multipliers import FreeMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.errors import ExhumeError
from exhume.records import AttackerView
from tests.attacks.stationarity.victims import regression


def test_only_the_first_layer_counts_where_the_others_keep_their_random_start():
    for decay, alone in ((0.0, True), (3e-3, False)):
        view = replace(regression(decay).view(), initial=None)
        assert clues_of(view).upper_layers_look_random is alone
        found = MaxMargin(trials=1, restarts=1, steps=10).run(view, device="cpu")
        assert found.diagnostics["upper_layers"] == (0.0 if alone else 1.0)


@pytest.mark.parametrize("model", [exhume.MLP(width=9, bias="first"), exhume.ConvNet(channels=4, depth=1, bias=False)])
def test_the_objective_is_linear_in_the_weight_of_upper_layers(model):
    module = model.build((1, 4, 4), 2, torch.Generator().manual_seed(0))
    final = {name: weight.double() for name, weight in module.state_dict().items()}
    view = AttackerView(model=module, final=final, input_shape=(1, 4, 4))
    free = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    raw = torch.ones(3, 2, dtype=torch.float64)
    values = {}
    for upper in (0.0, 0.25, 1.0):
        settings = {"upper_layers": upper, "dtype": torch.float64}
        problem = StationarityProblem.of(view, SearchSpace(16), FreeMultipliers(), **settings)
        value, (slope, _) = problem.objective(free, raw, torch.tensor(5.0), torch.tensor(0.0))
        values[upper] = torch.cat([value[None], slope.flatten()])
    torch.testing.assert_close(values[0.25], 0.75 * values[0.0] + 0.25 * values[1.0])


def test_a_negative_weight_is_refused():
    with pytest.raises(ExhumeError, match="upper_layers should be greater than or equal to 0"):
        MaxMargin(upper_layers=-1.0)
