"""Train a network and keep both ends of the training."""

import time
from typing import Any

import torch

from exhume.devices import resolve_device
from exhume.errors import ExhumeError
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP
from exhume.progress import Progress, silent
from exhume.records import Dataset, Victim
from exhume.training.losses import LOSSES


def train(
    data: Dataset,
    *,
    model: Architecture = MLP(),  # noqa: B008 - frozen settings
    loss: str = "mse",
    lr: float = 1e-2,
    momentum: float = 0.9,
    steps: int = 5000,
    stop_loss: float = 1e-10,
    precision: str = "float32",
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = silent,
) -> Victim:
    """Train ``model`` on the training split of ``data`` by full-batch gradient descent."""
    where, dtype = resolve_device(device), getattr(torch, precision)
    started = time.perf_counter()
    objective = LOSSES[loss]
    outputs = objective.outputs(data)
    network = model.build(data.input_shape, outputs, torch.Generator().manual_seed(seed)).to(where, dtype)
    initial = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
    inputs = data.to_model(data.train.inputs.to(where, dtype))
    targets = objective.targets(data, data.train).to(where)
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    optimiser = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    done = 0
    for done in range(1, steps + 1):  # noqa: B007
        optimiser.zero_grad()
        value = objective(network(inputs), targets)
        value.backward()
        optimiser.step()
        if done % 100 == 0:
            progress("train", done, steps, f"loss {value.item():.1e}")
            if not torch.isfinite(value):
                raise ExhumeError(f"The training diverged within {done} steps; lower the learning rate {lr:g}.")
            if value < stop_loss:
                break
    settings: dict[str, Any] = {"loss": loss, "optimiser": "sgd", "lr": lr, "momentum": momentum, "seed": seed}
    return Victim(
        architecture=model,
        initial=initial,
        final={name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()},
        input_shape=data.input_shape,
        outputs=outputs,
        bounds=data.bounds,
        offset=data.offset,
        dataset=data.name,
        training=settings,
        result={"steps": done, "loss": value.item(), "seconds": time.perf_counter() - started},
    )
