"""Training problems: flat weights, second derivatives, and batch statistics as PyTorch's training mode has them."""

import torch
from torch import nn

from exhume.hypergradients import TrainingProblem
from exhume.records import AttackerView
from exhume.training.losses import LOSSES
from tests.hypergradients.problems import pose_problem


def test_flat_weights_convert_back_to_named_weights():
    problem, start, _ = pose_problem("convolutional")
    named = problem.named(start)
    assert torch.equal(problem.flat(named), start)
    assert list(named) == [name for name, _ in problem.model.named_parameters()]
    assert not isinstance(problem.model, nn.Linear)


def test_second_derivatives_are_those_of_the_energy():
    problem, start, inputs = pose_problem("one hidden layer")
    along = torch.randn(start.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    by_weights, by_inputs = problem.second_derivatives(start, inputs, along)
    gradient, product = problem.curvature(start, inputs)
    assert torch.allclose(gradient, problem.gradient(start, inputs))
    assert torch.allclose(by_weights, product(along))
    step = 1e-6
    moved = problem.gradient(start, inputs + step) - problem.gradient(start, inputs - step)
    assert torch.allclose(by_inputs.sum(), moved @ along / (2 * step), rtol=1e-5)


def test_a_batch_is_normalised_as_in_training_where_statistics_changed():
    problem, start, inputs = pose_problem("residual")
    network = problem.model
    assert problem.normalised == ("normalisation", "stage1.block1.normalisation1", "stage1.block1.normalisation2")
    gradient, seen = problem.gradient_and_statistics(start, inputs)
    assert torch.equal(gradient, problem.gradient(start, inputs))
    images = inputs.reshape(-1, 1, 8, 8)
    first = nn.functional.conv2d(images, network.stem.weight, padding=1)
    assert torch.allclose(seen[:2], first.mean((0, 2, 3)))
    assert torch.allclose(seen[2:4], first.transpose(0, 1).flatten(1).var(1))
    running = {f"{name}.running_{kind}": torch.ones(2) for name in problem.normalised for kind in ("mean", "var")}
    assert problem.running_statistics(running).shape == seen.shape


def test_frozen_statistics_are_used_as_they_are():
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    view = AttackerView(model=model, initial=model.state_dict(), final=model.state_dict(), input_shape=(3,))
    problem = TrainingProblem.of(view, LOSSES["ce"], torch.tensor([0, 1]), 0.0, torch.float32)
    assert problem.normalised == ()
    assert torch.equal(problem.model(torch.ones(2, 3)), model(torch.ones(2, 3)))
