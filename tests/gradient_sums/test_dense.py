"""Closed-form gradient sums against autograd, torch.func, finite differences, and runs computed one by one."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.gradient_sums.dense import DenseSums
from exhume.gradient_sums.interface import GradientSums
from exhume.gradient_sums.module import ModuleSums
from exhume.gradient_sums.residuals import LowRank
from exhume.gradient_sums.sums import gradient_sums
from exhume.models.structure import dense_stack
from tests.gradient_sums.networks import (
    ARCHITECTURES,
    DOUBLE,
    assert_close,
    build,
    inputs_and_duals,
    random,
    slow_sum,
    sums_and_target,
    view_of,
)

every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())


def beta(sharpness):
    return None if sharpness is None else torch.tensor(sharpness, dtype=DOUBLE)


@every_architecture
def test_sums_are_sums_of_gradients(architecture):
    view = view_of(build(**architecture))
    inputs, duals = inputs_and_duals()
    sums, _ = sums_and_target(view)
    assert isinstance(sums, DenseSums)
    fast = dict(zip(sums.names, sums(inputs, duals)[0], strict=True))
    slow = [slow_sum(view.model, w, inputs, d) for w, d in zip((view.initial, view.final), duals, strict=True)]
    for name in view.final:
        torch.testing.assert_close(fast[name], slow[0][name] + slow[1][name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sharpness", [None, 4.0, 80.0])
@every_architecture
def test_value_and_gradients_are_those_of_torch_func(architecture, sharpness):
    view = view_of(build(**architecture))
    points = [view.initial, view.final]
    fast = DenseSums.at(dense_stack(view.model), points, DOUBLE)
    slow = ModuleSums.at(view, points, DOUBLE)
    assert fast.names == slow.names
    target = tuple(view.final[name] - view.initial[name] for name in fast.names)
    arguments = (target, *inputs_and_duals(), beta(sharpness))
    assert_close(fast.squared_residual(*arguments), slow.squared_residual(*arguments), rtol=1e-9, atol=1e-10)


@settings(max_examples=15, deadline=None)
@given(
    candidates=st.integers(1, 5),
    points=st.integers(1, 3),
    outputs=st.integers(1, 3),
    depth=st.integers(0, 3),
    known=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_gradients_are_those_of_finite_differences(candidates, points, outputs, depth, known, seed):
    view = view_of(build(outputs=outputs, width=5, depth=depth, seed=seed))
    inputs, duals = inputs_and_duals(candidates, points, outputs, seed)
    sums = gradient_sums(view, [view.initial, view.final, view.initial][:points], DOUBLE)
    target = tuple(view.final[name] - view.initial[name] for name in sums.names)
    if known and depth:
        sums = replace(sums, known=torch.linalg.qr(random(5, known, seed=seed)).Q.T)
    _, to_inputs, to_duals = sums.squared_residual(target, inputs, duals, beta(3.0))
    for variable, gradient, rest in ((inputs, to_inputs, duals), (duals, to_duals, inputs)):
        direction = random(*variable.shape, seed=seed)

        def value(step, variable=variable, direction=direction, rest=rest):
            moved = variable + step * direction
            pair = (moved, rest) if variable is inputs else (rest, moved)
            return float(sums.squared_residual(target, *pair, beta(3.0))[0])

        slope = (value(1e-5) - value(-1e-5)) / 2e-5
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-6)


def test_within_a_subspace_sums_are_the_same_in_coordinates():
    view = view_of(build(width=7))
    coordinates, duals = inputs_and_duals()[0][:, :3], inputs_and_duals(points=1)[1]
    basis = torch.linalg.qr(random(6, 3)).Q
    sums = DenseSums.at(dense_stack(view.model), [view.final], DOUBLE)
    whole = sums(coordinates @ basis.T, duals)[0]
    inside = sums.within(basis)(coordinates, duals)[0]
    torch.testing.assert_close(inside[0] @ basis.T, whole[0])
    assert_close(inside[1:], whole[1:])


@every_architecture
def test_without_scales_sums_are_divided_by_them(architecture):
    sums, _ = sums_and_target(view_of(build(**architecture)))
    inputs, duals = inputs_and_duals()
    scaled, plain = sums(inputs, duals)[0], sums.unscaled()(inputs, duals)[0]
    assert_close(plain, [one / scale for one, scale in zip(scaled, sums.parameter_scales, strict=True)])


def test_sharper_units_are_nearer_to_relus():
    view = view_of(build(width=7))
    inputs, duals = inputs_and_duals(points=1)
    sums = gradient_sums(view, [view.final], DOUBLE)
    exact = sums(inputs, duals)[0]
    errors = []
    for sharpness in (1.0, 10.0, 100.0, 1e4):
        smooth = sums(inputs, duals, beta(sharpness))[0]
        errors.append(float(sum((a - b).square().sum() for a, b in zip(smooth, exact, strict=True))))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6 * errors[0]


@every_architecture
def test_squared_norms_are_those_of_sums_written_out(architecture):
    sums, _ = sums_and_target(view_of(build(**architecture)))
    arguments = (*inputs_and_duals(5), beta(4.0))
    torch.testing.assert_close(sums.squared_norms(*arguments), GradientSums.squared_norms(sums, *arguments))


def assert_same_per_run(together, alone, runs):
    """Compare value and gradients of many runs with those of each; duals have their points first."""
    value, to_inputs, to_duals = together
    for run in range(runs):
        assert_close((value[run], to_inputs[run], to_duals[:, run]), alone(run))


@pytest.mark.parametrize("sharpness", [None, 4.0])
@every_architecture
def test_runs_that_share_weights_are_each_as_alone(architecture, sharpness):
    sums, target = sums_and_target(view_of(build(**architecture)))
    inputs, duals, metric = random(3, 4, 6), random(2, 3, 4, 2, seed=1), random(6, 6, seed=2)
    rest = (beta(sharpness), metric @ metric.T)
    together = sums.squared_residual(target, inputs, duals, *rest)
    assert_same_per_run(together, lambda run: sums.squared_residual(target, inputs[run], duals[:, run], *rest), 3)


@every_architecture
def test_each_run_has_its_own_sharpness(architecture):
    sums, target = sums_and_target(view_of(build(**architecture)))
    inputs, duals, sharp = random(3, 4, 6), random(2, 3, 4, 2, seed=1), torch.tensor([1.0, 5.0, 90.0], dtype=DOUBLE)

    def alone(run):
        return sums.squared_residual(target, inputs[run], duals[:, run], sharp[run])

    assert_same_per_run(sums.squared_residual(target, inputs, duals, sharp), alone, 3)
    assert_same_per_run(GradientSums.squared_residual(sums, target, inputs, duals, sharp), alone, 3)
    outputs = torch.stack([sums.outputs(run) for run in inputs], 1)
    torch.testing.assert_close(sums.outputs(inputs), outputs)


@every_architecture
def test_networks_of_one_shape_are_each_as_alone(architecture):
    each = [sums_and_target(view_of(build(seed=seed, **architecture), seed)) for seed in range(3)]
    inputs, duals = random(3, 4, 6), random(2, 3, 4, 2, seed=1)
    targets = tuple(torch.stack(parts) for parts in zip(*(target for _, target in each), strict=True))
    stacked = DenseSums.side_by_side([sums for sums, _ in each])

    def alone(run):
        sums, target = each[run]
        return sums.squared_residual(target, inputs[run], duals[:, run], beta(4.0))

    assert_same_per_run(stacked.squared_residual(targets, inputs, duals, beta(4.0)), alone, 3)


def test_one_network_many_times_shares_its_weights():
    sums, _ = sums_and_target(view_of(build(width=7)))
    assert DenseSums.side_by_side([sums, sums]) is sums


@every_architecture
@pytest.mark.parametrize("runs", [(), (3,)])
def test_rounded_products_are_close_to_exact_ones(architecture, runs):
    sums, target = sums_and_target(view_of(build(**architecture)))
    arguments = (target, random(*runs, 4, 6), random(2, *runs, 4, 2, seed=1), beta(4.0))
    exact, rounded = sums.squared_residual(*arguments), sums.rounded(torch.bfloat16).squared_residual(*arguments)
    for one, other in zip(rounded, exact, strict=True):
        assert one.dtype == DOUBLE
        assert float((one - other).norm() / other.norm()) < 0.05
        assert not torch.equal(one, other)


def test_targets_are_compacted_in_float32_only():
    sums, _ = sums_and_target(view_of(build(width=200, depth=2)))
    flat = {name: torch.ones(shape) for name, shape in (("a", (200, 6)), ("b", (200, 200)))}
    single = sums.compact(tuple(flat.values()), 2)
    assert isinstance(single[1], LowRank)
    double = tuple(one.double() for one in flat.values())
    assert sums.compact(double, 2) is double
