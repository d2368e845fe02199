"""What back-propagation explains of a row: all of a true one in a gradient, less of a mixture."""

from dataclasses import replace

import torch

from exhume.attacks.gates.backprop import explained_share
from exhume.attacks.gates.fit import fit_codes
from exhume.attacks.gates.pool import add_to_pool
from exhume.models.mlp import MLP
from tests.attacks.gates.evidence_victims import gradient_view, state_view
from tests.attacks.gates.victims import cosines, draw, problem_of, random_rows, true_rows, view_of, with_constant


def test_a_gradient_is_explained_by_its_inputs_and_a_mixture_is_not():
    data = draw(size=10)
    view = gradient_view(data, MLP(width=128))
    problem, inputs = problem_of(view), with_constant(view, data.train.inputs)
    rows = true_rows(view, data.train.inputs)
    assert problem.is_local
    shares = explained_share(problem, rows, inputs @ problem.basis)
    assert float(shares.min()) > 1 - 1e-6
    assert float(explained_share(problem, rows.roll(1, 0), inputs @ problem.basis).max()) < 0.9
    # A fitted input is near enough to tell.
    assert float(explained_share(problem, rows, fit_codes(problem, rows)).min()) > 0.8


def test_the_share_against_a_slow_twin():
    data = draw(size=10)
    view = state_view(data, MLP(width=64, depth=1), steps=5)
    problem, inputs = problem_of(view), with_constant(view, data.train.inputs)
    rows = random_rows(problem, 3)
    shares = explained_share(problem, rows, 2.0 * inputs[:3] @ problem.basis)  # the constant fixes the scale
    layer = dict(view.final)
    for index in range(3):
        on = (layer["layer1.weight"].double() @ inputs[index, :-1] + layer["layer1.bias"].double() > 0).double()
        signals = layer["layer2.weight"].double() * on
        row = rows[index] @ problem.rows
        weights = torch.linalg.lstsq(signals.T, row[:, None]).solution
        expected = (signals.T @ weights).norm() / row.norm()
        torch.testing.assert_close(shares[index], expected, rtol=1e-5, atol=1e-6)


def test_rows_that_backprop_explains_weigh_more():
    data = draw(size=10)
    view = gradient_view(data, MLP(width=256))
    problem, rows = problem_of(view), true_rows(view, data.train.inputs)
    pool, weights = add_to_pool(problem, rows[:0], rows.new_zeros(0), rows, -1.0)
    assert float(cosines(pool, rows).amax(dim=0).min()) > 1 - 1e-6
    blind, more = add_to_pool(_far_apart(problem), rows[:0], rows.new_zeros(0), rows, -1.0)
    assert len(blind) == len(pool)
    assert float((weights / more).max()) <= 1.0 + 1e-9


def _far_apart(problem):
    """Return the problem as if training had moved the gates, so that nothing is predicted."""
    moved = replace(problem, before=problem.before * (1 + 1e-9))
    assert not moved.is_local
    return moved


def test_trainings_are_not_local():
    data = draw(size=6)
    assert not problem_of(view_of(data, MLP(width=64), steps=50)).is_local
    assert true_rows(view_of(data, MLP(width=64), steps=50), data.train.inputs).shape == (6, 6)
