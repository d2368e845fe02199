"""The state of an optimiser as a record."""

import torch

from exhume.records import OptimiserState
from exhume.records.optimiser_state import read_state


def test_a_mapping_of_first_moments_becomes_a_state_without_facts() -> None:
    moments = {"layer.weight": torch.ones(2, 3)}
    state = read_state(moments)
    assert state.first_moment is moments
    assert state.describe() == {}
    assert read_state(state) is state


def test_facts_are_described_and_kept_beside_other_tensors() -> None:
    state = OptimiserState(first_moment={"w": torch.ones(2)}, slot="momentum_buffer", lr=0.1)
    assert state.describe() == {"slot": "momentum_buffer", "lr": 0.1}
    other = state.with_moment({"w": torch.zeros(2)})
    assert other.describe() == state.describe()
    assert other != state
