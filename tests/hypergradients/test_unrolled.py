"""Unrolled hypergradients against finite differences and one long autograd graph, in float64."""

import pytest
import torch

from exhume.attacks.stationarity.multipliers import TiedMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.clues.search_space import SearchSpace
from exhume.hypergradients import AdamRule, MomentumRule, Unrolled, one_step
from exhume.records import AttackerView
from tests.hypergradients.problems import DECAY, NETWORKS, pose_problem, slopes

LOWER = {
    "momentum": Unrolled(steps=7, rate=0.3, rule=MomentumRule(momentum=0.6)),
    "one step": one_step(DECAY),
    "plain": Unrolled(steps=16, rate=0.2),
    "adam": Unrolled(steps=5, rate=0.02, rule=AdamRule()),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("lower", LOWER)
def test_gradients_are_finite_differences(network, lower):
    ours, slow = slopes(LOWER[lower], *pose_problem(network))
    assert ours == pytest.approx(slow, rel=1e-4 if lower == "adam" or network == "residual" else 1e-5)


@pytest.mark.parametrize("kept_bytes", [0, 2**32])
@pytest.mark.parametrize("followed", [None, 0.8])
def test_gradients_by_all_data_are_those_of_one_long_graph(monkeypatch, kept_bytes, followed):
    monkeypatch.setattr("exhume.hypergradients.unrolled.KEPT_BYTES", kept_bytes)  # 0: kept are 0, 3, 6, 9
    problem, start, inputs = pose_problem("residual")
    lower = Unrolled(steps=11, rate=0.3, rule=MomentumRule(momentum=0.5), statistics_decay=followed)
    targets = torch.nn.functional.one_hot(problem.targets, 3).double()
    statistics = torch.ones(12, dtype=torch.float64)
    state, data = lower.begin(start, statistics), (inputs, targets, torch.tensor(0.1, dtype=torch.float64))

    def train_on(*given):
        reached = state
        for step in range(lower.steps):
            reached = lower.advance(problem, reached, step, *given)
        return reached

    end, pull = lower.trace(problem, state, *data)
    expected, slow_pull = torch.func.vjp(train_on, *data)
    cotangents = tuple(torch.ones_like(part) for part in end)
    assert len(end) == (2 if followed is None else 3)
    for ours, slow in zip((*end, *pull(cotangents)), (*expected, *slow_pull(cotangents)), strict=True):
        assert torch.allclose(ours, slow, rtol=1e-6, atol=1e-9)


def test_running_statistics_are_those_of_pytorch():
    problem, start, inputs = pose_problem("residual")
    lower = Unrolled(steps=3, rate=0.1, statistics_decay=0.9)
    before = torch.cat([torch.cat([torch.zeros(2), torch.ones(2)]) for _ in problem.normalised]).double()
    *_, running = lower.trace(problem, lower.begin(start, before), inputs)[0]
    network = NETWORKS["residual"].build((1, 8, 8), 3).double()
    network.load_state_dict(problem.named(start), strict=False)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=DECAY)
    for _ in range(3):
        optimiser.zero_grad()
        problem.loss(network(inputs.reshape(-1, 1, 8, 8)), problem.targets).backward()
        optimiser.step()
    assert torch.allclose(running, problem.running_statistics(network.state_dict()))


@pytest.mark.parametrize("network", ["affine", "one hidden layer", "one hidden layer, relu"])
def test_one_step_is_the_tied_stationarity_residual(network):
    problem, start, inputs = pose_problem(network)
    weights, pullback = one_step(DECAY)(problem, start, inputs)
    left = weights - start
    view = AttackerView(
        model=problem.model, final={**problem.named(start), **problem.fixed}, input_shape=problem.input_shape
    )
    tied = TiedMultipliers(problem.loss, problem.targets, 1 / (len(inputs) * DECAY))
    kkt = StationarityProblem.of(view, SearchSpace(inputs.shape[1]), tied, dtype=torch.float64)
    duals = kkt.duals(inputs, torch.zeros(1, dtype=torch.float64))
    value = kkt.sums.squared_residual(kkt.target, inputs, duals[None])[0]
    assert float(left @ left) == pytest.approx(float(value), rel=1e-9)
    by_inputs = kkt.objective(inputs, torch.zeros(1, dtype=torch.float64), None, torch.zeros(()))[1][0]
    assert torch.allclose(pullback(2 * left), by_inputs, rtol=1e-7, atol=1e-10)
