"""Small networks that begin with convolutions, and what attackers hold of them."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from exhume.records import AttackerView, Dataset


def conv_network(width: int = 192, seed: int = 0) -> nn.Sequential:
    """Build a network with two convolutions and a dense layer above them, whose features determine the image."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        parts = OrderedDict(
            convolution1=nn.Conv2d(1, 8, 3, padding=1),
            relu1=nn.ReLU(),
            convolution2=nn.Conv2d(8, 16, 3, stride=2, padding=1),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            hidden=nn.Linear(256, width),
            relu3=nn.ReLU(),
            out=nn.Linear(width, 2),
        )
        return nn.Sequential(parts)


def gradient_view(model: nn.Module, data: Dataset) -> AttackerView:
    """Return what an attacker holds who saw one gradient of the whole data set."""
    gradient = dict(zip(_names(model), torch.autograd.grad(_loss(model, data), list(model.parameters())), strict=True))
    return _view(model, data, gradient=gradient)


def weight_change_view(model: nn.Module, data: Dataset, *, frozen: bool, steps: int, lr: float = 0.1) -> AttackerView:
    """Train all layers, or those above the convolutions, and return both ends of the training."""
    initial = _weights(model)
    trained = [weight for name, weight in model.named_parameters() if not (frozen and name.startswith("conv"))]
    optimiser = torch.optim.SGD(trained, lr)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(_loss(model, data))
        optimiser.step()
    return _view(model, data, initial=initial, training={"steps": steps})


def _names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def _loss(model: nn.Module, data: Dataset) -> Tensor:
    return functional.cross_entropy(model(data.to_model(data.train.inputs)), data.train.labels.long())


def _view(model: nn.Module, data: Dataset, **evidence: Any) -> AttackerView:
    return AttackerView(
        model=model,
        final=_weights(model),
        input_shape=data.input_shape,
        bounds=data.bounds,
        offset=data.offset,
        **evidence,
    )
