"""The equations of the last layer: derivatives against autograd, exact solutions, and what they leave open."""

import torch
from torch import Tensor
from torch.nn import functional

from exhume.attacks.last_layer.consistency import (
    LastLayerProblem,
    Solution,
    _normal_equations,
    error_bounds,
    refine,
    start_from,
)


def pose(
    examples: int, outputs: int, seed: int = 0, labels: list[int] | None = None, gain: float = 0.3
) -> tuple[LastLayerProblem, Solution]:
    """Return the problem of random features in coordinates of their own span, and its solution."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(examples, 50, generator=generator, dtype=torch.float64)
    known = torch.cat([features, torch.ones(examples, 1)], dim=1).double()
    weights = gain * torch.randn(outputs, 51, generator=generator, dtype=torch.float64)
    one_hot = functional.one_hot(torch.tensor(labels or list(range(examples))), outputs).double()
    gradient = (torch.softmax(known @ weights.T, dim=1) - one_hot).T @ known / examples
    _, _, rows = torch.linalg.svd(known, full_matrices=False)
    problem = LastLayerProblem(mixtures=gradient @ rows.T, logits=weights @ rows.T, constant=rows[:, -1], noise=1e-9)
    return problem, Solution(codes=known @ rows.T, labels=one_hot, scale=1 / examples, residual=0.0)


def test_the_normal_equations_are_those_of_autograd() -> None:
    problem, truth = pose(4, 7)
    generator = torch.Generator().manual_seed(1)
    codes = truth.codes + 0.1 * torch.randn(truth.codes.shape, generator=generator, dtype=torch.float64)
    near = Solution(codes=codes, labels=truth.labels, scale=0.3, residual=0.0)

    def residuals(unknowns: Tensor) -> Tensor:
        moved, scale = unknowns[:-1].reshape(codes.shape), unknowns[-1].exp()
        signals = torch.softmax(moved @ problem.logits.T, dim=1) - truth.labels
        first = (problem.mixtures - scale * signals.T @ moved) / problem.mixtures.norm()
        return torch.cat([first.flatten(), moved @ problem.constant - 1])

    unknowns = torch.cat([codes.flatten(), torch.tensor([0.3], dtype=torch.float64).log()])
    slow: Tensor = torch.autograd.functional.jacobian(residuals, unknowns)  # type: ignore[no-untyped-call]
    gram, gradient = _normal_equations(problem, near)
    torch.testing.assert_close(gram, slow.T @ slow)
    torch.testing.assert_close(gradient, slow.T @ residuals(unknowns))


def test_features_of_different_classes_are_exact() -> None:
    problem, truth = pose(6, 10)
    usual = torch.full((6, 10), 0.1, dtype=torch.float64)
    found = refine(problem, start_from(problem, truth.labels, usual, 1 / 6), steps=60)
    assert found.residual < problem.tolerance
    torch.testing.assert_close(found.codes, truth.codes, rtol=1e-5, atol=1e-5)


def test_the_scale_of_the_gradient_need_not_be_known() -> None:
    problem, truth = pose(6, 10)
    usual = torch.full((6, 10), 0.1, dtype=torch.float64)
    found = refine(problem, start_from(problem, truth.labels, usual, 1.0), steps=60)
    assert abs(found.scale - 1 / 6) < 1e-6


def test_two_examples_of_a_class_with_equal_predictions_are_not_separated() -> None:
    problem, truth = pose(5, 10, labels=[0, 0, 1, 2, 3], gain=1e-7)
    bounds = error_bounds(problem, truth)
    assert bool((bounds[:2] > 0.1).all())
    assert bool((bounds[2:] < 1e-5).all())
