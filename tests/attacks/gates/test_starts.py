"""Starting points: inside their span, repeatable, and around the mean that silent units show."""

import torch

from exhume.attacks.gates.starts import draw_starts, find_common_input
from exhume.models.mlp import MLP
from tests.attacks.gates.victims import draw, problem_of, solved_problem, view_of, with_constant


def test_starts_lie_in_the_span_and_repeat_by_seed():
    problem = solved_problem(512).problem
    directions, strengths = problem.basis[:, :5], problem.strengths[:5]
    one, two = (draw_starts(problem, directions, strengths, 24, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(one @ directions @ directions.T, one)
    assert bool((one[:, -1] >= 0).all())


def test_silent_units_show_the_mean_of_uncentred_inputs():
    data = draw("faces", size=16, centre=False)
    view = view_of(data, MLP(width=512, parameterisation="torch"))
    problem = problem_of(view)
    mean = with_constant(view, data.train.inputs).mean(dim=0, keepdim=True)
    assert float(problem.silent.mean()) > 0.05
    assert float(torch.cosine_similarity(find_common_input(problem, problem.basis), mean)) > 0.8
