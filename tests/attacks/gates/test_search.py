"""Searching for rows: the steps against their definitions, and starts near true inputs against the truth."""

import pytest
import torch

from exhume.attacks.gates.rounds import STRATEGIES
from exhume.attacks.gates.search import (
    SearchSettings,
    common_input,
    ever_on,
    fit_halfspaces,
    off_probability,
    oriented,
    predicted_rows,
    random_starts,
    search,
    smallest_on,
)
from exhume.models.mlp import MLP
from tests.attacks.gates.victims import draw, problem_of, true_rows, view_of, with_constant


@pytest.fixture(scope="module")
def known():
    data = draw(size=16)
    view = view_of(data, MLP(width=512))
    return problem_of(view), true_rows(view, data.train.inputs), with_constant(view, data.train.inputs)


def cosines(left, right):
    return torch.cosine_similarity(left, right).abs()


def test_backpropagation_predicts_the_rows_of_lazy_training(known):
    problem, rows, inputs = known
    assert float(cosines(predicted_rows(problem, inputs), rows).min()) > 0.9


@pytest.mark.parametrize("settings", STRATEGIES)
def test_a_search_from_the_true_inputs_returns_their_rows(known, settings):
    problem, rows, inputs = known
    found, fitted = search(problem, inputs, problem.basis, settings)
    arrived = cosines(found, rows) > 0.999
    assert int(arrived.sum()) >= len(rows) - 2
    assert float(torch.cosine_similarity(fitted, inputs)[arrived].min()) > 0.9


def test_a_search_from_noise_finds_most_rows(known):
    problem, rows, _ = known
    starts = random_starts(problem, problem.basis, problem.strengths, 128, torch.Generator().manual_seed(0))
    found, _ = search(problem, starts, problem.basis, SearchSettings())
    hit = (found @ rows.T).abs() > 0.999
    assert int(hit.any(dim=0).sum()) >= 12


def test_starts_lie_in_the_span_and_repeat_by_seed(known):
    problem, _, _ = known
    directions, strengths = problem.basis[:, :5], problem.strengths[:5]
    one, two = (random_starts(problem, directions, strengths, 24, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(one @ directions @ directions.T, one)
    assert bool((one[:, -1] >= 0).all())


def test_silent_units_give_the_mean_of_uncentred_inputs_away():
    data = draw("faces", size=16, centre=False)
    view = view_of(data, MLP(width=512, parameterisation="torch"))
    problem = problem_of(view)
    mean = with_constant(view, data.train.inputs).mean(dim=0, keepdim=True)
    assert float(problem.silent.mean()) > 0.05
    assert float(torch.cosine_similarity(common_input(problem, problem.basis), mean)) > 0.8


def test_the_smallest_row_is_the_smallest_eigenvector(known):
    problem, rows, _ = known
    weights = torch.rand(3, problem.rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = smallest_on(problem, rows[:3], weights, 2000)
    for row, weight in zip(found, weights, strict=True):
        smallest = torch.linalg.eigh((problem.rows * weight) @ problem.rows.T).eigenvectors[:, 0]
        assert float((row @ smallest).abs()) > 1 - 1e-6


def test_a_halfspace_is_fitted_to_the_pattern_it_made():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 300, 8, generator=generator, dtype=torch.float64)
    features[1] = features[0] + 0.01 * features[1]  # the end of training, near its start
    truth = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    on = ((truth @ features[0].T > 0) | (truth @ features[1].T > 0)).double()
    codes = fit_halfspaces(features.flatten(0, 1), on, torch.zeros_like(truth), 0.03, steps=20)
    assert float(torch.cosine_similarity(codes, truth).min()) > 0.99


def test_small_entries_are_off_and_large_ones_on():
    entries = torch.tensor([[0.0, 1e-3, 1.5, -1.4]], dtype=torch.float64)
    off = off_probability(entries, 0.5, torch.tensor([[0.01]], dtype=torch.float64))[0]
    assert float(off[:2].min()) > 0.95
    assert float(off[2:].max()) < 0.01


def test_a_unit_is_on_when_it_is_at_either_end():
    margins = torch.tensor([[-50.0, 50.0, -50.0, -50.0, -50.0, 50.0]])
    assert ever_on(margins).tolist() == [pytest.approx([0.02, 0.98, 0.98])]


def test_the_constant_orients_inputs(known):
    problem, _, inputs = known
    torch.testing.assert_close(oriented(problem, -inputs), inputs)


def test_normalised_rows_have_unit_mean_square(known):
    problem, rows, _ = known
    full = problem.normalised(rows)
    torch.testing.assert_close(full.pow(2).sum(dim=1) / problem.units, torch.ones(16, dtype=torch.float64))


def test_the_noise_width_is_the_size_of_entries_that_should_be_zero(known):
    problem, rows, inputs = known
    never = torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) < -0.2
    entries = problem.normalised(rows).abs().where(never & problem.informative.bool(), torch.nan)
    measured = entries.nanmedian(dim=1).values / 0.6745
    ratio = measured / problem.noise_width(rows)
    assert float(ratio.max()) < 4
    assert float(ratio.min()) > 0.1
