"""Sample splitting: directions against the dense Hessian, the predicted decrease, the saddle of two inputs, places."""

import pytest
import torch

from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.curvature import lowest_curvature
from exhume.gradient_sums.smooth_relu import with_smooth_relus
from exhume.gradient_sums.sums import gradient_sums
from exhume.models.mlp import MLP
from exhume.models.tangent import compute_outputs
from exhume.optimise import Adam, minimise_together
from exhume.optimise.splitting import Splits, choose_halves
from exhume.optimise.sum_problem import SumProblem
from exhume.records import AttackerView
from tests.gradient_sums.networks import DOUBLE, build, inputs_and_duals, random, sums_and_target, view_of

NETWORKS = {"tanh": ({"width": 6, "activation": "tanh"}, None), "smooth ReLU": ({"width": 7}, 4.0)}


def pose(view):
    sums, target = sums_and_target(view)
    return SumProblem(sums=sums, target=target, space=SearchSpace(6), box=None, box_weight=0.0)


def find(problem, inputs, duals, sharpness, distance=1e-3):
    field = problem.residual_field(inputs, duals, sharpness)
    return lowest_curvature(field, inputs, distance=distance, generator=torch.Generator().manual_seed(0))


def slow_hessians(view, target, inputs, duals, sharpness):
    """The Hessian of ``⟨S − T, s(x_j)⟩`` per candidate, by autograd through gradients of outputs."""
    models = [with_smooth_relus(view.module(weights)).double() for weights in (view.initial, view.final)]
    if sharpness is not None:
        for model in models:
            for name, buffer in model.named_buffers():
                assert name.endswith("sharpness")
                buffer.fill_(sharpness)

    def gradient_of(one, dual):
        """The candidate's own share of the sum, one tensor per parameter."""
        shares = []
        for model, own in zip(models, dual, strict=True):
            buffers = dict(model.named_buffers())

            def output(weights, model=model, own=own, buffers=buffers):
                return (compute_outputs(model, {**weights, **buffers}, one.reshape(1, 1, 3, 2))[0] * own).sum()

            shares.append(torch.func.grad(output)(dict(model.named_parameters())))
        return {name: shares[0][name] + shares[1][name] for name in shares[0]}

    names = [name for name, _ in models[0].named_parameters()]
    each = [gradient_of(one, duals[:, j]) for j, one in enumerate(inputs)]
    residual = {name: sum(one[name] for one in each) - wanted for name, wanted in zip(names, target, strict=True)}

    def overlap(one, dual):
        share = gradient_of(one, dual)
        return sum((share[name] * residual[name].detach()).sum() for name in names)

    return torch.stack([torch.func.hessian(overlap)(one, duals[:, j]).detach() for j, one in enumerate(inputs)])


@pytest.mark.parametrize("name", NETWORKS)
def test_curvature_is_that_of_the_dense_hessian(name):
    settings, sharpness = NETWORKS[name]
    view = view_of(build(**settings))
    problem, (inputs, duals) = pose(view), inputs_and_duals()
    beta = None if sharpness is None else torch.tensor(sharpness, dtype=DOUBLE)
    directions, curvature = find(problem, inputs, duals, beta)
    values, vectors = torch.linalg.eigh(slow_hessians(view, problem.target, inputs, duals, sharpness))
    torch.testing.assert_close(curvature, values[:, 0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        (directions * vectors[:, :, 0]).sum(-1).abs(), torch.ones(4, dtype=DOUBLE), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_a_split_lowers_the_objective_as_predicted(name):
    settings, sharpness = NETWORKS[name]
    problem, (inputs, duals) = pose(view_of(build(**settings))), inputs_and_duals()
    beta = None if sharpness is None else torch.tensor(sharpness, dtype=DOUBLE)
    directions, curvature = find(problem, inputs, duals, beta)
    before = problem.squared_residual(inputs, duals, beta)[0]
    assert float(curvature.min()) < 0
    for j in range(len(inputs)):
        moved = torch.cat([inputs, inputs[j : j + 1] - 1e-3 * directions[j]])
        moved[j] += 1e-3 * directions[j]
        halved = torch.cat([duals, duals[:, j : j + 1] / 2], 1)
        halved[:, j] /= 2
        change = problem.squared_residual(moved, halved, beta)[0] - before
        torch.testing.assert_close(change / 1e-6, curvature[j], rtol=1e-2, atol=1e-4)


def test_one_candidate_between_two_inputs_is_split_along_their_difference():
    model = MLP(width=400, activation="tanh").build((1, 3, 2), 1, torch.Generator().manual_seed(0)).double()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    sums = gradient_sums(
        AttackerView(model=model, initial=weights, final=weights, input_shape=(1, 3, 2)), [weights], DOUBLE
    )
    pair = random(2, 6, seed=5)
    target = sums(pair, torch.ones(1, 2, 1, dtype=DOUBLE))[0]
    problem = SumProblem(sums=sums, target=target, space=SearchSpace(6), box=None, box_weight=0.0)
    midpoint, summed = pair.mean(0, keepdim=True), torch.full((1, 1, 1), 2.0, dtype=DOUBLE)
    directions, curvature = find(problem, midpoint, summed, None, distance=0.05)
    difference = (pair[1] - pair[0]) / (pair[1] - pair[0]).norm()
    assert float(curvature) < 0
    assert abs(float(directions[0] @ difference)) > 0.95


def plan(candidates, splits, steps=(0, 30, 30), labels=None, field=None):
    labels = torch.zeros(candidates, dtype=torch.long) if labels is None else torch.tensor(labels)
    return Splits.plan(splits, steps=steps, labels=labels, fields=lambda *_: field, space=SearchSpace(4), dual_axis=-2)


def test_splits_are_spread_over_the_stages_of_a_search():
    assert plan(4, 2).at_steps == (10, 20)
    assert plan(4, 0).at_steps == ()
    first, second = plan(4, 2, (0, 15, 30)), plan(4, 2, (15, 15, 30))
    assert (first.at_steps, first.earlier) == ((10,), 0)
    assert (second.at_steps, second.earlier) == ((5,), 1)
    assert plan(4, 1, (15, 15, 30)).at_steps == (1,)


def test_a_split_doubles_what_is_filled():
    assert plan(8, 2).births.tolist() == [0, 0, 1, 1, 2, 2, 2, 2]
    assert plan(5, 1).births.tolist() == [0, 0, 0, 1, 1]
    assert plan(5, 2, labels=[0, 1, 0, 1, 0]).births.tolist() == [0, 0, 1, 2, 2]


def test_second_halves_keep_to_the_labels():
    splits = plan(6, 1, labels=[0, 1, 0, 1, 0, 1])
    gains = torch.tensor([[1.0, 2.0, 3.0, 1.0, 9.0, 9.0], [3.0, 1.0, 1.0, 2.0, 9.0, 9.0]])
    sources, signs = choose_halves(gains, splits.births - 1, splits.groups)
    assert sources.tolist() == [[0, 1, 2, 3, 2, 1], [0, 1, 2, 3, 0, 3]]
    assert signs.tolist() == [[0, 1, 1, 0, -1, -1], [1, 0, 0, 1, -1, -1]]


def test_candidates_without_a_gain_are_not_split_and_later_places_wait():
    gains = torch.tensor([[-1.0, -torch.inf, 9.0, 9.0, 9.0], [-1.0, 2.0, 9.0, 9.0, 9.0]])
    sources, signs = choose_halves(gains, torch.tensor([-1, -1, 0, 0, 1]), [torch.arange(5)])
    assert sources.tolist() == [[0, 1, 2, 3, 4], [0, 1, 1, 3, 4]]
    assert signs.tolist() == [[0, 0, 0, 0, 0], [0, 1, -1, 0, 0]]


def test_halves_share_the_dual_and_inherit_the_moments():
    coordinates, duals = random(2, 3, 2), random(2, 1, 3, 1, seed=1)
    duals[:, :, 2] = 0.0
    before = coordinates.clone(), duals.clone()
    moments = tuple((torch.full((2, 3, 2), 4.0, dtype=DOUBLE), torch.ones(2, 1, 3, 1, dtype=DOUBLE)) for _ in range(2))
    field = torch.tensor([-5.0, 1.0, 1.0], dtype=DOUBLE)[:, None]
    splits = plan(3, 1, field=lambda at: field * at)
    splits.apply((coordinates, duals), moments, torch.tensor([True, False]), 15)
    assert torch.equal(coordinates[1], before[0][1])
    assert torch.equal(duals[1], before[1][1])
    torch.testing.assert_close(coordinates[0, [0, 2]].mean(0), before[0][0, 0])
    torch.testing.assert_close((coordinates[0, 0] - coordinates[0, 2]).norm(), torch.tensor(0.2, dtype=DOUBLE))
    torch.testing.assert_close(duals[0, 0, [0, 2]], before[1][0, 0, [0, 0]] / 2)
    assert torch.equal(coordinates[0, 1], before[0][0, 1])
    (means, _), (squares, _) = moments
    assert means[:, :, 0].tolist() == [[2.0, 4.0, 2.0], [4.0, 4.0, 4.0]]
    assert squares[:, :, 0].tolist() == [[1.0, 4.0, 1.0], [4.0, 4.0, 4.0]]


def test_empty_places_wait_for_their_split():
    waiting = []

    def objective(variables, elapsed):
        waiting.append(bool(variables[1][0, 0, 2:].any()))
        value = sum(variable.square().flatten(1).sum(1) for variable in variables)
        return value, tuple(2 * variable for variable in variables)

    splits = plan(4, 1, field=lambda at: -at)
    start = random(1, 4, 2), random(1, 1, 4, 1, seed=1)
    (end,) = minimise_together(
        objective, start, Adam(steps=30, learning_rates=(0.01, 0.01)), scales=(1.0,), splits=splits
    )
    assert waiting == [False] * 15 + [True] * 15
    assert end.steps == 30
