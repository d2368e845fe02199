"""Separation of inputs from a view: what the last step of an optimiser says about output weights."""

from dataclasses import replace

import torch

from exhume.attacks.gates.separation import find_drift
from exhume.clues.clues import clues_of
from exhume.records import AttackerView, OptimiserState
from tests.attacks.gates.test_shared_part import inputs_with_a_common_part, network, view_of


def state_view(**facts: object) -> tuple[AttackerView, OptimiserState]:
    view = view_of(network(width=50), inputs_with_a_common_part())
    gradient = view.gradient
    assert gradient is not None
    squares = {name: tensor.square() + 1e-6 for name, tensor in gradient.items()}
    state = OptimiserState(first_moment=gradient, second_moment=squares, **facts)
    return replace(view, gradient=None, optimiser_state=state), state


def test_the_drift_of_output_weights_is_the_last_step_of_their_layer() -> None:
    view, state = state_view(optimiser="AdamW", steps=10, second_decay=0.999, eps=1e-8)
    layer, readout = clues_of(view).require_gate_layers()[0], view.final["2.weight"].double()
    drift, step = find_drift(view, layer, readout), state.last_step()["2.weight"].double()
    assert drift is not None
    torch.testing.assert_close(drift / drift.norm(), step / step.norm(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(drift.norm(), readout.norm())


def test_without_a_known_step_there_is_no_drift() -> None:
    view, _ = state_view()
    layer, readout = clues_of(view).require_gate_layers()[0], view.final["2.weight"].double()
    assert find_drift(view, layer, readout) is None
