"""The compressed row problem gives the same products and the same answers as the full one."""

import pytest
import torch

from exhume.attacks.gates.check import check_rows
from exhume.attacks.gates.compression import compress_values
from exhume.attacks.gates.problem import pose_problem
from exhume.clues.clues import clues_of
from exhume.clues.first_layer import backward_signals
from exhume.models.mlp import MLP
from tests.attacks.gates.victims import draw, view_of


@pytest.mark.parametrize("bias", ["all", "none"])
def test_lengths_gates_and_read_outs_are_preserved(bias: str) -> None:
    view = view_of(draw(size=6), MLP(width=96, bias=bias), steps=40)
    subspace = clues_of(view).require_subspace()
    problem = pose_problem(subspace, (backward_signals(view, view.final, subspace.layer),) * 2)
    small, columns = compress_values(problem)
    assert small.before.shape[1] == 6 + problem.has_bias
    codes = torch.randn(4, problem.rank, generator=torch.Generator().manual_seed(0)).double()
    inputs = codes @ problem.basis.T
    assert torch.allclose(inputs @ columns @ columns.T, inputs)
    assert torch.allclose((inputs @ columns) @ small.before.T, inputs @ problem.before.T)
    assert torch.allclose((inputs @ columns).norm(dim=1), inputs.norm(dim=1))
    if problem.has_bias:
        assert torch.allclose((inputs @ columns)[:, -1], inputs[:, -1])
    rows = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)).double()).Q
    assert torch.allclose(check_rows(small, rows).inputs @ columns.T, check_rows(problem, rows).inputs, atol=1e-6)


def test_a_problem_with_few_values_stays_as_it_is() -> None:
    view = view_of(draw(size=6), MLP(width=96), steps=40)
    subspace = clues_of(view).require_subspace()
    problem = pose_problem(subspace, (backward_signals(view, view.final, subspace.layer),) * 2)
    small, _ = compress_values(problem)
    assert compress_values(small)[0].before.shape == small.before.shape
