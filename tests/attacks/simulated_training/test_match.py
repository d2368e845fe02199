"""The distance of changes: zero at the truth, gradients as finite differences, penalties by hand."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks import SimulatedTraining
from tests.attacks.simulated_training.victims import train_resnet


def pose(labels, **settings):
    """Return the objective of a residual network in float64, and variables at its training images."""
    data, victim = train_resnet(precision="float64")
    view = victim.view()
    truth = tuple(data.train.labels.tolist())
    attack = SimulatedTraining(
        candidates=4, labels=truth if labels == "true" else labels, precision="float64", **settings
    )
    match = attack.match(view, attack.recipe(view), data.train.labels)
    inputs = view.to_model(data.train.inputs.double()).flatten(1)
    logits = 3.0 * torch.nn.functional.one_hot(data.train.labels, 2).double()
    return match, (inputs, logits) if labels == "learned" else (inputs,)


def test_a_simulated_training_on_the_truth_repeats_the_real_one():
    match, (inputs,) = pose("true", variation_weight=0.0, box_weight=0.0, sharpness=None)
    assert float(match.distance(*match.read((inputs,)))) < 1e-12
    assert torch.allclose(match.simulate(*match.read((inputs,))), match.change, atol=1e-10)
    value, (gradient,) = match.objective((inputs,), torch.zeros(()))
    assert float(value) < 1e-12, "the norm and the running statistics match too"
    assert gradient.norm() < 1e-5


@pytest.mark.parametrize("labels", ["true", "learned"])
@pytest.mark.parametrize("learns_rate", [False, True])
def test_gradients_are_finite_differences(labels, learns_rate):
    match, variables = pose(labels, norm_weight=0.3, variation_weight=0.1, statistics_weight=0.5, sharpness=None)
    match = replace(match, learns_rate=learns_rate)
    generator = torch.Generator().manual_seed(0)
    variables = tuple(v + 0.1 * torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in variables)
    variables += (torch.tensor([-0.3], dtype=torch.float64),) * learns_rate
    along = [torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in variables]
    _, gradients = match.objective(variables, torch.zeros(()))
    assert len(gradients) == len(variables)
    for number, (gradient, direction) in enumerate(zip(gradients, along, strict=True)):
        ends = []
        for sign in (1e-8, -1e-8):
            moved = list(variables)
            moved[number] = moved[number] + sign * direction
            ends.append(float(match.objective(tuple(moved), torch.zeros(()))[0]))
        assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-8, rel=1e-2, abs=1e-6)


def test_variation_is_the_mean_difference_of_neighbours():
    match, (inputs,) = pose("true")
    images = inputs.reshape(-1, 1, 8, 8)
    rows, columns = (images[:, :, 1:] - images[:, :, :-1]).abs(), (images[..., 1:] - images[..., :-1]).abs()
    assert float(match.variation(inputs)) == pytest.approx(float(rows.mean() + columns.mean()))
    table = replace(match, problem=replace(match.problem, input_shape=(64,)))
    assert float(table.variation(inputs)) == 0.0


def test_a_longer_change_in_the_same_direction_differs_in_norm_alone():
    match, _ = pose("true", norm_weight=0.5)
    value, gradient = match._mismatch(2 * match.change)
    assert float(value) == pytest.approx(0.5 * torch.tensor(2.0).log().square().item())
    assert float(gradient @ match.change) > 0
    bare = replace(match, norm_weight=0.0)
    assert float(bare._mismatch(2 * match.change)[0]) == pytest.approx(0.0, abs=1e-12)
