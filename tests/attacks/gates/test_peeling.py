"""Peeling: inputs that single units show in one gradient, and what is left without them."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from exhume.attacks import GateCertificate
from exhume.attacks.gates.peeling import SingleInputs, _pose_sums, _separate, _subtract, can_peel, peel_rows
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from tests.attacks.gates.evidence_victims import gradient_view, state_view
from tests.attacks.gates.victims import draw, problem_of, score, true_rows, view_of, with_constant

SIZE = 16


def faces():
    """Return photographs that are not centred, so that units fire on few of them or on nearly all."""
    return draw("faces", size=SIZE, centre=False)


def network(*above: nn.Module, width: int = 400, dtype=torch.float32) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Linear(625, width)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), *(above or (nn.Linear(width, 2),))).to(dtype)


def one_gradient(model: nn.Module, data, weights=None) -> AttackerView:
    """Return what an attacker holds who saw one gradient of a cross-entropy; ``weights`` of the examples."""
    inputs = data.train.inputs.to(next(model.parameters()).dtype)
    losses = functional.cross_entropy(model(inputs), data.train.labels, reduction="none")
    loss = losses.mean() if weights is None else (weights.to(losses) * losses).mean()
    parts = torch.autograd.grad(loss, list(model.parameters()))
    gradient = dict(zip((name for name, _ in model.named_parameters()), parts, strict=True))
    final = model.state_dict()
    return AttackerView(model=model, final=final, gradient=gradient, input_shape=(1, 25, 25), bounds=(0.0, 1.0))


def solved(model=None, weights=None):
    data = faces()
    view = one_gradient(model or network(), data, weights)
    problem = problem_of(view)
    inputs = with_constant(view, data.train.inputs)
    return problem, true_rows(view, data.train.inputs), inputs @ problem.basis


def count_true(found, rows) -> int:
    return int(((found @ rows.T).abs() > 1 - 1e-6).any(dim=1).sum())


@pytest.mark.parametrize(
    "above",
    [(), (nn.Linear(400, 50), nn.ReLU(), nn.Linear(50, 2))],
    ids=["linear output layer", "two hidden layers"],
)
def test_every_peeled_row_is_that_of_one_input(above):
    problem, rows, _ = solved(network(*above))
    found, _ = peel_rows(problem)
    assert len(found) >= SIZE // 2
    assert count_true(found, rows) == len(found)
    cosines = (found @ found.T).abs().fill_diagonal_(0)
    assert float(cosines.max()) < 1 - 1e-6  # none is found twice


def test_weak_inputs_are_found_beside_strong_ones():
    problem, rows, _ = solved(weights=torch.logspace(0, -3, SIZE))
    found, _ = peel_rows(problem)
    assert count_true(found, rows) == len(found) >= SIZE // 2


def test_the_second_sum_of_a_unit_is_over_the_inputs_that_leave_it_off():
    model, data = network(), faces()
    problem, _, codes = solved(model)
    sums = _pose_sums(problem)
    units = problem.rows.shape[1]
    assert sums.left.shape[1] == 2 * units
    with torch.no_grad():
        outputs = model(data.train.inputs).double()
        is_off = (codes @ problem.gates[0].T <= 0).double()
        residuals = (outputs.softmax(dim=1) - functional.one_hot(data.train.labels, 2)) / SIZE
        expected = codes.T @ (is_off * (residuals @ model[3].weight.double()))
    informative = problem.informative.bool()
    difference = (sums.left[:, units:] - expected)[:, informative].norm() / expected[:, informative].norm()
    assert float(difference) < 1e-4


def test_a_unit_has_one_sum_below_a_second_hidden_layer():
    problem, *_ = solved(network(nn.Linear(400, 50), nn.ReLU(), nn.Linear(50, 2)))
    assert _pose_sums(problem).left.shape[1] == problem.rows.shape[1]


def test_inputs_are_separated_once_the_rows_of_all_are_known():
    problem, rows, codes = solved()
    mixed = codes + 0.05 * codes.roll(1, 0)
    found = _separate(problem, SingleInputs(mixed, torch.zeros(SIZE).to(codes), rows))
    assert float((found.codes - codes).norm() / codes.norm()) < 1e-3


def test_what_is_left_lies_in_the_span_of_missing_inputs():
    problem, rows, codes = solved()
    known, missing = slice(0, SIZE - 3), codes[SIZE - 3 :]
    mixed = codes[known] + 0.1 * missing[0]  # a missing input in every known one
    found = _separate(problem, SingleInputs(mixed, torch.zeros(SIZE - 3).to(codes), rows[known]))
    left = _subtract(problem, _pose_sums(problem), found).left[:, : problem.rows.shape[1]]
    span = torch.linalg.qr(missing.T).Q
    assert float((left - span @ (span.T @ left)).norm() / left.norm()) < 1e-3


def test_gates_of_other_units_give_no_rows():
    problem, *_ = solved()
    order = torch.randperm(len(problem.before), generator=torch.Generator().manual_seed(0))
    assert len(peel_rows(replace(problem, before=problem.before[order], after=problem.after[order]))[0]) == 0


def test_a_dense_random_matrix_gives_no_rows():
    problem, *_ = solved()
    noise = torch.randn(problem.rows.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    dense = torch.linalg.qr((noise * problem.informative).T).Q.T
    assert len(peel_rows(replace(problem, rows=dense))[0]) == 0


def test_peeling_needs_exact_gates_and_a_bias():
    data = draw(size=10)
    assert can_peel(problem_of(gradient_view(data)))
    assert not can_peel(problem_of(state_view(data, steps=5)))
    assert not can_peel(problem_of(view_of(data, MLP(width=256, depth=1))))
    assert not can_peel(replace(problem_of(gradient_view(data)), has_bias=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_gradient_in_either_precision_gives_all_inputs_with_proofs(dtype):
    data = faces()
    found = GateCertificate().run(one_gradient(network(width=600, dtype=dtype), data), seed=0, device="cpu")
    result = score(found, data.train.inputs)
    assert result.recovered == SIZE
    assert result.exact >= SIZE - 2
    assert result.false == 0


def test_fewer_directions_than_inputs_end_without_an_exception():
    data = faces()
    weights = torch.cat([torch.ones(SIZE - 4), torch.full((4,), 1e-9)])
    found = GateCertificate(rounds=3).run(one_gradient(network(), data, weights), seed=0, device="cpu")
    assert score(found, data.train.inputs).false == 0
