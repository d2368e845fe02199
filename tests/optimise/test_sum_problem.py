"""The problem that attacks by gradient sums share: chunks, compact targets and the box change no gradient."""

from dataclasses import replace

import pytest
import torch

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.sums import gradient_sums
from exhume.optimise.box import Box
from exhume.optimise.sum_problem import SumProblem
from tests.gradient_sums.networks import DOUBLE, build, random, view_of


def pose(space):
    view = view_of(build(width=7))
    sums = gradient_sums(view, [view.final], DOUBLE)
    target = [view.final[name] for name in sums.names]
    if space.basis is not None:
        sums, target[0] = sums.within(space.basis), target[0] @ space.basis
    box = Box(torch.full((6,), -0.5, dtype=DOUBLE), torch.full((6,), 0.5, dtype=DOUBLE))
    return SumProblem(sums=sums, target=tuple(target), space=space, box=box, box_weight=2.0)


SPACES = {
    "all inputs": SearchSpace(6),
    "a subspace": SearchSpace(6, torch.linalg.qr(random(6, 4)).Q),
    "an affine subspace": SearchSpace(6, torch.linalg.qr(random(6, 4)).Q, 0.7),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_gradients_by_free_coordinates_are_those_of_autograd(space):
    problem = pose(space)
    duals = random(1, 3, 4, 2, seed=2)
    free, sharp = random(3, 4, space.dimension, seed=1), torch.tensor([2.0, 5.0, 9.0], dtype=DOUBLE)

    def value(at):
        return problem.squared_residual(at, duals, sharp)[0].sum() + problem.box_penalty(at)[0].sum()

    slow = torch.func.grad(value)(free)
    fast = problem.to_free(problem.squared_residual(free, duals, sharp)[1]) + problem.box_penalty(free)[1]
    torch.testing.assert_close(fast, slow)


def test_chunks_change_no_result():
    whole = pose(SPACES["an affine subspace"])
    parts = replace(whole, at_once=3)
    free, duals, sharp = random(3, 4, 3, seed=1), random(1, 3, 4, 2, seed=2), torch.tensor(4.0, dtype=DOUBLE)
    torch.testing.assert_close(parts.squared_residual(free, duals, sharp), whole.squared_residual(free, duals, sharp))
    torch.testing.assert_close(parts.box_penalty(free), whole.box_penalty(free))


def test_without_a_box_there_is_no_penalty():
    problem = pose(SPACES["all inputs"])
    free = random(4, 6)
    assert replace(problem, box=None).box_penalty(free) is None
    assert replace(problem, box_weight=0.0).box_penalty(free) is None
    assert problem.size == pytest.approx(float(sum(part.square().sum() for part in problem.target)))
