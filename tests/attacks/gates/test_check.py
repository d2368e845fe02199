"""Checking rows: counts and bounds against slow twins, p-values against simulated nulls, rows against the truth."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from exhume.attacks.gates.check import (
    SINGLE_INPUT,
    _log_tail,
    agreement,
    check,
    coverage,
    fitted_inputs,
    log_halfspace_patterns,
    log_p_generic,
    log_p_value,
    missing_directions,
    reduced,
    sharpen,
    shows_zero,
)
from tests.attacks.gates.victims import (
    draw,
    problem_of,
    random_change,
    true_rows,
    unit_rows,
    view_of,
    with_constant,
)

LIMIT = math.log(1e-3 / 1000)
"""The log p-value below which a row counts, after a thousand tries."""


@pytest.fixture(scope="module")
def known():
    """A problem with its answer: the rows and the inputs that trained the network."""
    data = draw(size=16)
    view = view_of(data)
    return problem_of(view), true_rows(view, data.train.inputs), with_constant(view, data.train.inputs)


@pytest.fixture(scope="module")
def dense():
    """A problem without an answer: no vector of the row space has more zeros than can be forced."""
    return problem_of(random_change()[0])


def random_rows(problem, count, seed=0):
    rows = torch.randn(count, problem.rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.mark.parametrize(("points", "free"), [(1, 1), (3, 1), (4, 2), (5, 2), (5, 3), (6, 3), (3, 5)])
def test_halfspace_patterns_against_brute_force(points, free):
    generator = torch.Generator().manual_seed(points * 10 + free)
    where = torch.randn(points, free, generator=generator, dtype=torch.float64)
    halfspaces = torch.randn(100_000, free, generator=generator, dtype=torch.float64)
    seen = torch.unique(halfspaces @ where.T > 0, dim=0)
    assert math.exp(log_halfspace_patterns(points, free)) == pytest.approx(len(seen))


def test_one_pattern_when_nothing_is_free():
    assert log_halfspace_patterns(1000, 0) == 0.0


@given(trials=st.integers(1, 3000), share=st.floats(0, 1), chance=st.floats(1e-6, 1 - 1e-6))
def test_the_tail_bound_is_never_below_the_tail(trials, share, chance):
    hits = round(share * trials)
    bound = _log_tail(np.array([float(hits)]), trials, np.array([chance]))[0]
    assert bound >= binom.logsf(hits - 1, trials, chance) - 1e-6 * abs(bound) - 1e-9


class TestTrueRows:
    def test_are_zero_on_the_units_their_input_leaves_off(self, known):
        problem, rows, inputs = known
        # All but the few units that fired in the middle of training only.
        assert float(coverage(problem, rows, inputs).min()) > 0.95

    def test_agree_with_their_inputs_and_no_other(self, known):
        problem, rows, inputs = known
        own = agreement(problem, rows, inputs)
        others = agreement(problem, rows, inputs.roll(1, dims=0))
        assert float(own.min()) > 0.97
        assert float(others.max()) < SINGLE_INPUT

    def test_are_no_generic_vectors_of_the_row_space(self, known):
        problem, rows, _ = known
        assert float(log_p_generic(problem, rows).max()) < -50

    def test_give_their_inputs_back_with_a_tiny_p_value(self, known):
        problem, rows, inputs = known
        checked = check(problem, rows)
        assert bool(checked.is_single.all())
        assert float((checked.inputs - inputs).abs().max()) < 5e-3
        assert float(checked.log_p.max()) < -50

    def test_stay_when_sharpened(self, known):
        problem, rows, _ = known
        sharp = sharpen(problem, rows)
        assert float((sharp * rows).sum(dim=1).abs().min()) > 1 - 1e-5

    def test_are_reached_by_sharpening_from_nearby(self, known):
        problem, rows, _ = known
        nearby = rows + 0.02 * random_rows(problem, len(rows))
        sharp = sharpen(problem, nearby / nearby.norm(dim=1, keepdim=True))
        assert float((sharp * rows).sum(dim=1).abs().min()) > 1 - 1e-4

    def test_are_left_alone_by_reduction(self, known):
        problem, rows, _ = known
        assert float((reduced(problem, rows, rows) * rows).sum(dim=1).abs().min()) > 1 - 1e-6

    def test_fit_inputs_of_their_direction_from_zeros_alone(self, known):
        problem, rows, inputs = known
        fitted = fitted_inputs(problem, rows, problem.basis)
        assert float(torch.cosine_similarity(fitted, inputs).min()) > 0.9


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(4), 2)))
@pytest.mark.parametrize("share", [0.5, -1.0, 2.0])
def test_a_mixture_of_two_rows_is_taken_apart(known, first, second, share):
    problem, rows, _ = known
    mixture = rows[first] + share * rows[second]
    mixture = mixture[None] / mixture.norm()
    apart = reduced(problem, mixture, rows[[second]])
    assert float((apart @ rows[first]).abs()) > 1 - 1e-5
    assert int(shows_zero(problem, apart).sum()) > int(shows_zero(problem, mixture).sum())


def test_missing_directions_hold_the_missing_inputs_and_no_others(known):
    problem, rows, inputs = known
    found, missing = list(range(0, 16, 2)), list(range(1, 16, 2))
    directions, strengths = missing_directions(problem, rows[found])
    assert directions.shape[1] == len(strengths) == len(missing)
    spanned = torch.linalg.qr(inputs[missing].T).Q
    assert float(torch.linalg.svdvals(directions.T @ spanned).min()) > 1 - 1e-5
    outside = inputs[found] - inputs[found] @ directions @ directions.T
    assert float((outside.norm(dim=1) / inputs[found].norm(dim=1)).min()) > 0.05


def test_nothing_is_missing_when_all_rows_are_found(known):
    problem, rows, _ = known
    assert missing_directions(problem, rows)[0].shape[1] == 0
    everything, strengths = missing_directions(problem, rows[:0])
    assert everything is problem.basis
    assert strengths is problem.strengths


def test_with_rows_missing_the_p_value_pays_for_the_freedom(known):
    problem, rows, _ = known
    agreed = torch.full((1,), 0.97, dtype=torch.float64)
    bounds = [float(log_p_value(problem, rows[:1], agreed, free)) for free in range(5)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 5


class TestNull:
    def test_random_vectors_of_a_row_space_look_generic(self, known, dense):
        for problem in (known[0], dense):
            log_p = log_p_generic(problem, random_rows(problem, 1000))
            assert float(log_p.min()) > -1.0

    def test_as_many_zeros_as_can_be_forced_are_no_evidence(self, dense):
        sharp = sharpen(dense, random_rows(dense, 1000))
        assert float(shows_zero(dense, sharp).sum(dim=1).double().mean()) >= dense.rank - 2
        assert float(log_p_generic(dense, sharp).min()) > LIMIT

    def test_zeros_that_have_nothing_to_do_with_the_weights_are_no_evidence(self):
        for seed in range(4):
            view, effects = random_change(seed=seed, sparse=True)
            problem = problem_of(view)
            # The sparse rows are there, and found from nearby; but the gates of their inputs are not theirs.
            sharp = sharpen(problem, unit_rows(effects, problem.rows))
            assert float(log_p_generic(problem, sharp).max()) < LIMIT
            checked = check(problem, sharp)
            assert not bool(checked.is_single.any())
            assert float(checked.log_p.min()) > LIMIT

    def test_p_values_of_random_gates_are_no_smaller_than_they_say(self, known):
        problem, rows, _ = known
        generator = torch.Generator().manual_seed(0)
        shown = problem.normalised(rows[:1]).abs() > 1e-2
        predicted = torch.rand(20_000, shown.shape[1], generator=generator) < 0.5
        agreed = (predicted == shown).double().mean(dim=1)
        p_values = log_p_value(problem, rows[:1].expand(len(agreed), -1), agreed, 0).exp()
        for level in (0.1, 0.01, 0.001):
            assert float((p_values <= level).double().mean()) <= level
