"""The state of an optimiser as a record, and as PyTorch's optimisers write it."""

import pytest
import torch
from torch import nn

from exhume.core.errors import WeightsError
from exhume.records import OptimiserState
from exhume.records.optimiser_state import read_state

RULES = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
}


def test_a_mapping_of_first_moments_becomes_a_state_without_facts() -> None:
    moments = {"layer.weight": torch.ones(2, 3)}
    state = read_state(moments, nn.Linear(3, 2))
    assert state.first_moment is moments
    assert state.describe() == {}
    assert read_state(state, nn.Linear(3, 2)) is state


def test_facts_are_described_and_kept_beside_other_tensors() -> None:
    state = OptimiserState(first_moment={"w": torch.ones(2)}, slot="momentum_buffer", lr=0.1)
    assert state.describe() == {"slot": "momentum_buffer", "lr": 0.1}
    other = state.with_moments({"w": torch.zeros(2)})
    assert other.describe() == state.describe()
    assert other != state


@pytest.mark.parametrize("name", RULES)
def test_each_optimiser_is_named_and_its_moment_is_a_multiple_of_the_first_gradient(name: str) -> None:
    model = nn.Linear(3, 2)
    rule = RULES[name](model.parameters())
    model(torch.eye(3)).square().sum().backward()
    gradient = model.weight.grad.clone()
    rule.step()
    state = read_state(rule.state_dict(), model)
    assert state.optimiser == name
    moment = state.first_moment["weight"]
    torch.testing.assert_close(moment * (gradient.norm() / moment.norm()), gradient)


def test_lion_is_known_by_its_settings() -> None:
    content = {
        "state": {0: {"exp_avg": torch.ones(2, 3)}, 1: {"exp_avg": torch.ones(2)}},
        "param_groups": [{"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "params": [0, 1]}],
    }
    state = read_state(content, nn.Linear(3, 2))
    assert (state.optimiser, state.decay, state.lr) == ("Lion", 0.99, 1e-4)


def test_the_window_ends_where_precision_does() -> None:
    state = OptimiserState(first_moment={}, optimiser="AdamW", lr=1e-3, decay=0.9, second_decay=0.999, steps=10_000)
    window = state.window(1.2e-7)
    assert window is not None
    assert 0.9**window <= 1.2e-7 < 0.9 ** (window - 1)


@pytest.mark.parametrize(
    "content",
    [
        {"state": {}, "param_groups": []},
        {"state": {0: 3}, "param_groups": [{"params": [0]}]},
        {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"params": None}]},
        {"state": {0: {"exp_avg": torch.ones(9)}}, "param_groups": [{"params": [0]}]},
        {"state": {0: {"note": "x"}}, "param_groups": [{"params": [0]}]},
        {"weight": "words"},
    ],
    ids=["empty", "no slots", "no numbers", "shape", "no tensors", "words"],
)
def test_states_that_no_optimiser_writes_are_refused(content: dict) -> None:
    with pytest.raises(WeightsError):
        read_state(content, nn.Linear(3, 2))


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_the_last_step_is_the_direction_in_which_the_weights_moved(name: str) -> None:
    model = nn.Linear(3, 2)
    rule = RULES[name](model.parameters())
    before = model.weight.detach().clone()
    for _ in range(3):
        before = model.weight.detach().clone()
        rule.zero_grad()
        model(torch.eye(3)).square().sum().backward()
        rule.step()
    moved = before - model.weight.detach()
    step = read_state(rule.state_dict(), model).last_step()["weight"]
    torch.testing.assert_close(step / step.norm(), moved / moved.norm(), rtol=1e-3, atol=1e-4)


def test_the_last_step_of_other_optimisers_is_unknown() -> None:
    assert OptimiserState(first_moment={"w": torch.ones(2)}, slot="exp_avg").last_step() == {}


def test_a_state_before_its_first_step_has_none() -> None:
    moments = ({"weight": torch.ones(2)}, {"weight": torch.ones(2)})
    state = OptimiserState(
        optimiser="Adam", first_moment=moments[0], second_moment=moments[1], second_decay=0.999, eps=1e-8, steps=0
    )
    assert state.last_step() == {}
