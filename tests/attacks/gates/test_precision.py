"""How far noise moves inputs, alone and beside the span of rows that may be mixed."""

from dataclasses import replace

import torch

from exhume.attacks.gates.precision import find_families, fit_families, fit_spans, input_errors
from exhume.attacks.gates.zeros import find_zeros
from tests.attacks.gates.victims import made_problem, mix_rows, solved_problem


def read(problem, rows):
    effects = (problem.change @ torch.linalg.inv(rows)).T
    return effects / effects[:, -1:]


def worst_errors(problem, inputs, noise, spans):
    """Slow twin: add noise to the change, find rows again from zeros, read the inputs out; the largest of 20 draws.

    ``spans`` are pairs of units and the number of rows that are zero on them.
    """
    worst = torch.zeros(len(inputs), dtype=torch.float64)
    change = problem.change @ problem.rows
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        disturbed = change + noise * torch.randn(change.shape, generator=generator, dtype=torch.float64)
        left, strengths, right = torch.linalg.svd(disturbed, full_matrices=False)
        right = right[: problem.rank]
        lowest = [(torch.linalg.eigh(right[:, own] @ right[:, own].T).eigenvectors, count) for own, count in spans]
        found = torch.cat([vectors[:, :count].T for vectors, count in lowest])
        effects = (left[:, : problem.rank] * strengths[: problem.rank]) @ torch.linalg.inv(found)
        worst = torch.maximum(worst, ((effects / effects[-1]).T - inputs).abs().amax(dim=1))
    return worst


class TestInputErrors:
    def test_bounds_hold_for_noise_of_the_stated_size(self):
        problem, rows, inputs = solved_problem()
        noise = 1e-4 * float(problem.strengths[-1])
        worst = worst_errors(problem, inputs, noise, [(own, 1) for own in find_zeros(problem, rows)])
        bounds = input_errors(replace(problem, noise=noise), rows)
        assert bool((worst <= bounds).all())
        assert float((worst / bounds).max()) > 0.1, "a bound that is never approached would withdraw true certificates"

    def test_what_noise_does_not_explain_is_added(self):
        problem, rows, _ = solved_problem()
        more = input_errors(replace(problem, unexplained=1e-3), rows) - input_errors(
            replace(problem, unexplained=0.0), rows
        )
        assert float(more.min()) > 0


class TestFamilies:
    def test_pairs_that_share_a_row_are_one_family(self):
        parts = torch.zeros(6, 6, dtype=torch.bool)
        parts[0, 3] = parts[5, 3] = parts[1, 2] = True
        assert find_families(parts) == [[0, 3, 5], [1, 2]]
        assert find_families(torch.zeros(3, 3, dtype=torch.bool)) == []

    def test_rows_that_cannot_be_mixed_stay_as_they_are(self):
        problem, rows, _ = solved_problem()
        fitted, families = fit_families(problem, rows)
        assert families == []
        assert torch.equal(fitted, rows)

    def test_missing_rows_leave_all_as_they_are(self):
        problem, rows, _ = solved_problem()
        assert fit_families(problem, rows[1:])[1] == []

    def test_other_inputs_depend_on_the_span_alone(self):
        """Rows 0 and 1 are replaced by nearly parallel mixtures of them, whose effects are large and cancel."""
        problem, rows, inputs = made_problem(count=8, width=300, twins=1, closeness=0.05)
        mixed = mix_rows(rows, 0, 1, 0.3)
        mixed = torch.cat([mixed[:1], mixed[:1] + 1e-3 * rows[1:2], rows[2:]])
        mixed = mixed / mixed.norm(dim=1, keepdim=True)
        noisy = replace(problem, noise=1e-6 * float(problem.strengths[-1]))
        fitted = fit_spans(noisy, mixed, [[0, 1]])
        alone, together = input_errors(noisy, fitted), input_errors(noisy, fitted, [[0, 1]])
        assert float((read(problem, fitted) - inputs)[2:].abs().max()) < 1e-4
        assert bool((together[2:] < 0.1 * alone[2:]).all())
        assert torch.equal(together[:2], alone[:2])

    def test_a_span_follows_from_the_zeros_that_its_rows_share(self):
        """Slow twin: the eigenvectors of the two lowest eigenvalues over the common zeros."""
        problem, rows, _ = made_problem(count=8, width=300, twins=1, closeness=0.05)
        generator = torch.Generator().manual_seed(0)
        nearby = rows + 1e-9 * torch.randn(rows.shape, generator=generator, dtype=torch.float64)
        fitted = fit_spans(problem, nearby, [[0, 1]])
        columns = problem.rows[:, find_zeros(problem, nearby)[:2].all(dim=0)]
        lowest = torch.linalg.eigh(columns @ columns.T).eigenvectors[:, :2]
        outside = fitted[:2] - fitted[:2] @ lowest @ lowest.T
        assert float(outside.norm()) < 1e-9
        assert torch.equal(fitted[2:], nearby[2:])

    def test_bounds_beside_a_span_hold_for_noise_of_the_stated_size(self):
        problem, rows, inputs = made_problem(count=8, width=300, twins=1, closeness=0.05)
        noise, zeros = 1e-6 * float(problem.strengths[-1]), find_zeros(problem, rows)
        spans = [(zeros[:2].all(dim=0), 2), *((own, 1) for own in zeros[2:])]
        worst = worst_errors(problem, inputs, noise, spans)[2:]
        bounds = input_errors(replace(problem, noise=noise), rows, [[0, 1]])[2:]
        assert bool((worst <= bounds).all())
        assert float((worst / bounds).max()) > 0.05
