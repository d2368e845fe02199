"""The second moment of Adam as quadratic forms on the span of the inputs."""

from dataclasses import replace

import torch

from exhume.clues.clues import clues_of
from exhume.clues.second_moment import read_unit_squares
from tests.attacks.gates.evidence_victims import adam_view
from tests.attacks.gates.victims import draw, with_constant


def test_forms_add_up_to_the_squares_and_vanish_on_inputs_that_never_fired():
    data = draw("faces", size=12)
    view, fired = adam_view(data)
    subspace = clues_of(view).require_subspace()
    squares = read_unit_squares(subspace)
    assert squares is not None
    explained = torch.einsum("vi,kij,vj->vk", subspace.basis, squares.forms, subspace.basis)
    measured = subspace.layer.squares
    is_live = fired.any(dim=0)
    scale = (measured.norm(dim=0) / explained.norm(dim=0))[is_live]
    torch.testing.assert_close(explained[:, is_live] * scale, measured[:, is_live], rtol=1e-3, atol=1e-5 * scale.max())
    inputs = with_constant(view, data.train.inputs) @ subspace.basis
    readers = torch.linalg.inv(inputs)
    values = (readers.T @ squares.forms @ readers).diagonal(dim1=1, dim2=2).T
    relative = values / values.mean(dim=1, keepdim=True)
    assert float(relative[~fired].abs().max()) < 1e-3
    assert float((relative[fired] > 1e-3).double().mean()) > 0.95


def test_squares_of_what_left_the_span_are_refused():
    view, _ = adam_view(draw("faces", size=12))
    state = view.optimiser_state
    more = {name: square * (1 + 1e-3 * torch.rand_like(square)) for name, square in state.second_moment.items()}
    other = replace(view, optimiser_state=state.with_moments(state.first_moment, more))
    assert read_unit_squares(clues_of(other).require_subspace()) is None


def test_too_many_inputs_or_no_squares_give_no_forms():
    view, _ = adam_view(draw("digits", size=12))  # 78 unknowns and at most 65 values
    assert read_unit_squares(clues_of(view).require_subspace()) is None
    view, _ = adam_view(draw("faces", size=12))
    without = view.optimiser_state.with_moments(view.optimiser_state.first_moment)
    assert read_unit_squares(clues_of(replace(view, optimiser_state=without)).require_subspace()) is None


def test_values_that_repeat_each_other_determine_no_forms():
    subspace = clues_of(adam_view(draw("faces", size=12))[0]).require_subspace()
    basis = torch.zeros_like(subspace.basis)
    basis[:, 0] = 1.0
    assert read_unit_squares(replace(subspace, basis=basis)) is None
