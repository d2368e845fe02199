"""Small training problems, and slow derivatives to compare hypergradients with; in float64."""

import functools

import torch

import exhume
from exhume.hypergradients import TrainingProblem
from exhume.models.convnet import ConvNet
from exhume.models.resnet import ResNet
from exhume.records import AttackerView
from exhume.training.losses import LOSSES

DECAY = 0.05
NETWORKS = {
    "affine": exhume.MLP(depth=0),
    "one hidden layer": exhume.MLP(width=6, depth=1, activation="softplus"),
    "one hidden layer, relu": exhume.MLP(width=6, depth=1),
    "two hidden layers, ntk": exhume.MLP(width=5, depth=2, activation="tanh", parameterisation="ntk"),
    "convolutional": ConvNet(channels=2, depth=1, activation="silu"),
    "residual": ResNet(channels=2, blocks=(1,)),
}


@functools.cache
def pose_problem(network: str, loss: str = "ce"):
    """Return a training problem of few images, weights to begin at, and inputs; with batch statistics."""
    data = exhume.load("digits", classes="0,1,2" if loss == "ce" else "odd-even", size=6, test=0)
    generator = torch.Generator().manual_seed(0)
    model = NETWORKS[network].build(data.input_shape, 3 if loss == "ce" else 1, generator)
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        model.train()(data.train.inputs)  # changes the running statistics, where there are any
    view = AttackerView(model=model, initial=initial, final=model.state_dict(), input_shape=data.input_shape)
    targets = LOSSES[loss].encode(data.train.labels, len(data.classes))
    problem = TrainingProblem.of(view, LOSSES[loss], targets, DECAY, torch.float64)
    return problem, problem.flat(view.final), data.train.inputs.double().flatten(1)


def slopes(lower, problem, start, inputs, seed=1):
    """Return the derivative of a random linear function of the trained weights along random inputs, twice."""
    generator = torch.Generator().manual_seed(seed)
    along = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    cotangent = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    ours = (lower(problem, start, inputs)[1](cotangent) * along).sum()
    step = 1e-5
    ends = [lower(problem, start, inputs + sign * step * along)[0] @ cotangent for sign in (1, -1)]
    return float(ours), float((ends[0] - ends[1]) / (2 * step))
