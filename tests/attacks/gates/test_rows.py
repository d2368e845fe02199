"""Rows of given inputs: found despite units that fired in mid-training, polished, and each kept once."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates import rows as rows_module
from exhume.attacks.gates.rows import (
    are_same,
    complement,
    drop_repeats,
    polish,
    rows_of_inputs,
    rows_through_units,
    sharpen,
)
from exhume.attacks.gates.zeros import count_evidence, find_zeros
from tests.attacks.gates.victims import cosines, made_problem, random_rows, solved_problem


def generator():
    return torch.Generator().manual_seed(0)


class TestRowsOfInputs:
    def test_rows_of_true_inputs_are_found(self):
        problem, rows, inputs = solved_problem()
        found = rows_of_inputs(problem, inputs @ problem.basis, None)
        assert float((found * rows).sum(dim=1).abs().min()) > 0.999

    @pytest.mark.parametrize("seed", range(3))
    def test_outliers_are_no_obstacle(self, seed):
        problem, rows, inputs = made_problem(outliers=0.1, seed=seed)
        found = rows_of_inputs(problem, inputs @ problem.basis, None)
        assert float((found * rows).sum(dim=1).abs().min()) > 1 - 1e-6
        is_zero = problem.normalise(rows).abs() < 1e-3
        off = torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) < 0
        assert float((off & ~is_zero).sum() / off.sum()) > 0.05

    def test_least_squares_alone_would_be_misled(self):
        """Negative control: the same units without re-weighting."""
        problem, rows, inputs = made_problem(outliers=0.1)
        off = (torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) < 0) * problem.informative
        grams = torch.stack([(problem.directions * units) @ problem.directions.T for units in off])
        plain = torch.linalg.eigh(grams).eigenvectors[:, :, 0]
        assert float((plain * rows).sum(dim=1).abs().min()) < 0.999

    def test_a_scale_changes_nothing(self):
        problem, _, inputs = made_problem(outliers=0.1)
        codes = inputs @ problem.basis
        one, two = (rows_of_inputs(problem, scale * codes, 3.0) for scale in (1.0, 4.0))
        assert float((one * two).sum(dim=1).abs().min()) > 1 - 1e-9

    def test_parts_equal_the_whole(self, monkeypatch):
        problem, _, inputs = made_problem()
        whole = rows_of_inputs(problem, inputs @ problem.basis, 3.0)
        monkeypatch.setattr(rows_module, "numbers_at_once", lambda _: 1)
        parts = rows_of_inputs(problem, inputs @ problem.basis, 3.0)
        assert float((whole * parts).sum(dim=1).abs().min()) > 1 - 1e-6

    def test_outside_all_other_rows_a_row_is_found_from_worse_inputs(self):
        problem, rows, inputs = solved_problem(width=4 * 16)
        codes = inputs @ problem.basis
        noise = random_rows(problem, len(codes)) * (codes - codes.mean(dim=0)).norm(dim=1, keepdim=True)
        outside = torch.stack([complement(torch.cat([rows[:row], rows[row + 1 :]])) for row in range(len(rows))])
        counts = []
        for known in (None, outside):
            found = rows_of_inputs(problem, codes + 0.1 * noise, 3.0, outside=known)
            counts.append(int(((found * rows).sum(dim=1).abs() > 1 - 1e-6).sum()))
        assert counts[1] > counts[0]

    def test_known_rows_are_not_found_again(self):
        problem, rows, inputs = made_problem()
        outside = complement(rows[1:])
        torch.testing.assert_close(outside.T @ outside, torch.eye(1, dtype=torch.float64))
        assert float((rows[1:] @ outside).abs().max()) < 1e-9
        found = rows_of_inputs(problem, inputs @ problem.basis, None, outside=outside)
        assert float((found[1:] * rows[1:]).sum(dim=1).abs().max()) < 1 - 1e-6
        assert float((found[0] * rows[0]).sum().abs()) > 1 - 1e-6

    def test_an_input_that_leaves_nothing_off_gives_a_finite_row(self):
        problem, _, inputs = made_problem()
        codes = torch.stack([torch.zeros(problem.rank, dtype=torch.float64), inputs[0] @ problem.basis])
        found = rows_of_inputs(problem, codes, None)
        assert bool(found.isfinite().all())
        torch.testing.assert_close(found.norm(dim=1), torch.ones(2, dtype=torch.float64))


class TestRowsThroughUnits:
    def test_rows_are_found_in_a_narrow_layer(self):
        problem, rows, inputs = solved_problem(width=4 * 16)
        found = rows_through_units(problem, inputs @ problem.basis, generator())
        exact = (polish(problem, found) @ rows.T).abs().amax(dim=0) > 1 - 1e-6
        fitted = rows_of_inputs(problem, inputs @ problem.basis, None)
        assert int(exact.sum()) >= int(((polish(problem, fitted) * rows).sum(dim=1).abs() > 1 - 1e-6).sum())
        assert int(exact.sum()) >= 14

    def test_outliers_are_avoided(self):
        problem, rows, inputs = made_problem(outliers=0.1)
        found = rows_through_units(problem, inputs @ problem.basis, generator())
        assert float((found @ rows.T).abs().amax(dim=0).min()) > 1 - 1e-6

    def test_a_row_vanishes_on_the_units_it_is_found_through(self):
        problem, _, inputs = made_problem()
        codes = inputs @ problem.basis
        found = rows_through_units(problem, codes, generator()).chunk(2)
        off = torch.maximum(inputs @ problem.before.T, inputs @ problem.after.T) < 0
        for rows in found:
            torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows), dtype=torch.float64))
            assert int((find_zeros(problem, rows) & off).sum(dim=1).min()) >= problem.rank - 1

    def test_inputs_with_too_few_units_off_and_problems_too_large_have_none(self, monkeypatch):
        problem, _, inputs = made_problem()
        nothing = torch.zeros(2, problem.rank, dtype=torch.float64)
        assert len(rows_through_units(problem, nothing, generator())) == 0
        monkeypatch.setattr(rows_module, "numbers_at_once", lambda _: 1)
        assert len(rows_through_units(problem, inputs @ problem.basis, generator())) == 0


class TestSharpen:
    def test_rows_that_are_nearly_right_become_exact(self):
        problem, rows, _ = made_problem(traces=1e-5)
        nearby = rows + 2e-3 * random_rows(problem, len(rows))
        nearby = nearby / nearby.norm(dim=1, keepdim=True)
        assert float((nearby * rows).sum(dim=1).abs().max()) < 1 - 1e-7
        assert float((sharpen(problem, nearby) * rows).sum(dim=1).abs().min()) > 1 - 1e-10

    def test_no_row_loses_zeros(self):
        problem, rows, _ = made_problem(outliers=0.1)
        every = torch.cat([rows, random_rows(problem, 20)])
        assert bool((count_evidence(problem, sharpen(problem, every)) >= count_evidence(problem, every)).all())
        assert sharpen(problem, rows[:0]).shape == (0, 6)


class TestPolish:
    def test_true_rows_stay(self):
        problem, rows, _ = solved_problem()
        assert float((polish(problem, rows) * rows).sum(dim=1).abs().min()) > 1 - 1e-7

    def test_rows_are_reached_from_nearby(self):
        problem, rows, _ = solved_problem()
        nearby = rows + 3e-4 * random_rows(problem, len(rows))
        nearby = nearby / nearby.norm(dim=1, keepdim=True)
        polished = polish(problem, nearby)
        left, gained = (1 - (each * rows).sum(dim=1).abs() for each in (nearby, polished))
        assert float(gained.max()) < 0.1 * float(left.min())

    @pytest.mark.parametrize("traces", [1e-5, 3e-5])
    def test_small_entries_that_are_no_zeros_do_little_harm(self, traces):
        """As in the state of an optimiser, where units that fired long ago leave traces; against equal weights."""
        problem, rows, _ = made_problem(twins=1, closeness=0.05, traces=traces)
        equal = rows
        for _ in range(2):
            grams = torch.stack([(problem.rows * z) @ problem.rows.T for z in find_zeros(problem, equal).double()])
            equal = torch.linalg.eigh(grams).eigenvectors[:, :, 0]
        harm, before = (1 - (each * rows).sum(dim=1).abs().min() for each in (polish(problem, rows), equal))
        assert float(harm) < 0.3 * float(before)

    def test_polishing_twice_is_polishing_once(self):
        problem, rows, _ = solved_problem()
        once = polish(problem, rows)
        assert float((polish(problem, once) * once).sum(dim=1).abs().min()) > 1 - 1e-9

    def test_no_rows_stay_none(self):
        problem, rows, _ = made_problem()
        assert polish(problem, rows[:0]).shape == (0, problem.rank)


def test_rows_are_kept_once_up_to_sign():
    problem, rows, _ = solved_problem()
    assert torch.equal(drop_repeats(problem, torch.cat([rows, -rows, rows[:3]])), rows)
    assert torch.equal(drop_repeats(problem, rows[:0]), rows[:0])


def test_noise_makes_rows_the_same():
    problem, rows, _ = solved_problem()
    tilted = torch.nn.functional.normalize(rows + 1e-2 * random_rows(problem, len(rows)))
    assert not are_same(problem, rows, tilted).any()
    assert are_same(replace(problem, noise=float(problem.strengths[-1])), rows, tilted).diagonal().all()


def test_kept_rows_are_not_the_same_and_dropped_ones_are():
    problem, _, _ = made_problem()
    rows = random_rows(problem, 200)
    kept = drop_repeats(problem, rows, 0.4**0.5)  # 1 - cosine is half of the square
    assert float((cosines(kept, kept) - torch.eye(len(kept))).max()) <= 0.8
    assert float(cosines(rows, kept).amax(dim=1).min()) > 0.8
