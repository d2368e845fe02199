"""The range of inputs: what lies outside is noticed, and a lost scale is found where values touch the ends."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.input_range import fit_scale, is_inside_range, range_ends
from exhume.attacks.gates.rules import CertificateRules
from exhume.models.mlp import MLP
from exhume.records import AttackerView

RULES = CertificateRules()


@pytest.fixture
def view() -> AttackerView:
    model = MLP(width=4).build((6,), 1, torch.Generator().manual_seed(0))
    return AttackerView(model=model, final=model.state_dict(), input_shape=(6,), bounds=(0.0, 1.0))


def test_values_outside_by_more_than_the_slack_are_noticed(view):
    inputs = torch.full((3, 6), 0.5, dtype=torch.float64)
    inputs[0, 0], inputs[1, 0], inputs[2, 0] = 1.01, 1.03, -0.03
    assert is_inside_range(view, inputs, RULES).tolist() == [True, False, False]
    assert is_inside_range(replace(view, bounds=None), 100 * inputs, RULES).all()


def test_the_offset_shifts_the_range(view):
    shifted = replace(view, offset=torch.full((6,), 0.5))
    assert is_inside_range(shifted, torch.full((1, 6), -0.5, dtype=torch.float64), RULES).all()
    assert not is_inside_range(shifted, torch.full((1, 6), 0.9, dtype=torch.float64), RULES).any()


def test_the_scale_is_proven_by_three_values_at_the_end_of_the_range(view):
    inputs = torch.tensor([[1.0, 1.0, 1.0, 0.4, 0.2, 0.0], [1.0, 1.0, 0.9, 0.4, 0.2, 0.0]], dtype=torch.float64)
    scale, is_proven = fit_scale(view, inputs / torch.tensor([[7.0], [3.0]]), RULES)
    torch.testing.assert_close(scale, torch.tensor([[7.0], [3.0]], dtype=torch.float64))
    assert is_proven.tolist() == [True, False]


def test_without_a_range_no_scale_is_proven(view):
    scale, is_proven = fit_scale(replace(view, bounds=None), torch.rand(2, 6, dtype=torch.float64), RULES)
    assert scale.tolist() == [[1.0], [1.0]]
    assert not is_proven.any()


def test_directions_tell_inside_from_outside_as_the_values_do(view):
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(7, 7, generator=generator, dtype=torch.float64)).Q
    inputs = 0.5 + 0.4 * torch.randn(200, 6, generator=generator, dtype=torch.float64)
    carried = torch.cat([inputs, torch.ones(200, 1, dtype=torch.float64)], dim=1)
    distances = 3.0 * carried @ basis @ range_ends(view, basis).T
    is_inside = (distances > -3.0 * RULES.precision).all(dim=1)
    torch.testing.assert_close(distances[:, :6] + distances[:, 6:], torch.full((200, 6), 3.0, dtype=torch.float64))
    assert torch.equal(is_inside, is_inside_range(view, inputs, RULES))
    assert 0 < int(is_inside.sum()) < 200


def test_an_unknown_range_or_a_layer_without_a_constant_has_no_directions(view):
    assert range_ends(replace(view, bounds=None), torch.eye(7, dtype=torch.float64)) is None
    assert range_ends(view, torch.eye(6, dtype=torch.float64)) is None
