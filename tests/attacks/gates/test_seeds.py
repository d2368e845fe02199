"""Seeds: changes of single units contain inputs; random ones lie in their span."""

import torch

from exhume.attacks.gates.seeds import column_seeds, draw_starts
from tests.attacks.gates.victims import made_problem, solved_problem


class TestColumnSeeds:
    def test_inputs_that_fired_a_unit_alone_are_among_them_exactly(self):
        problem, rows, inputs = made_problem(count=4)
        fired = problem.normalise(rows).abs() > 1e-3
        alone = (fired & (fired.sum(dim=0) == 1)).any(dim=1)
        assert bool(alone.all())
        seeds = column_seeds(problem) @ problem.basis.T
        # Not up to sign: the constant orients them.
        best = torch.cosine_similarity(seeds[:, None], inputs[None], dim=2).amax(dim=0)
        assert float(best.min()) > 1 - 1e-9

    def test_there_is_one_per_informative_unit_and_the_smallest_comes_first(self):
        problem, _, _ = solved_problem()
        seeds = column_seeds(problem)
        assert seeds.shape == (problem.units, problem.rank)
        sizes = seeds.norm(dim=1)
        assert bool((sizes.diff() >= -1e-12).all())

    def test_without_the_part_of_known_rows_they_contain_missing_inputs_only(self):
        problem, rows, inputs = made_problem()
        known, missing = rows[:-2], inputs[-2:] @ problem.basis
        seeds = column_seeds(problem, known)
        inside = torch.linalg.qr(missing.T).Q
        torch.testing.assert_close(seeds @ inside @ inside.T, seeds)
        # The smallest of them are near one of the two.
        best = torch.cosine_similarity(seeds[:, None], missing[None], dim=2).amax(dim=1)
        assert float(best.median()) > 0.9

    def test_without_a_bias_both_signs_are_there(self):
        problem, _, _ = made_problem(has_bias=False)
        seeds = column_seeds(problem)
        assert len(seeds) == 2 * problem.units
        assert torch.equal(seeds[::2], -seeds[1::2])


def test_starts_lie_in_the_span_and_repeat_by_seed():
    problem = solved_problem(512).problem
    directions, strengths = problem.basis[:, :5], problem.strengths[:5]
    one, two = (draw_starts(problem, directions, strengths, 24, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(one @ directions @ directions.T, one)
    assert bool((one[:, -1] >= 0).all())
