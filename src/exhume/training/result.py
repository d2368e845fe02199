"""What the record of a finished training states."""

from typing import Any

import torch
from torch import Tensor, nn

from exhume.records import Dataset, Victim
from exhume.training.losses import Loss
from exhume.training.prediction import accuracy, predict
from exhume.version import __version__


def copy_weights(network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all weights and buffers on the CPU."""
    return {name: weight.detach().cpu().clone() for name, weight in network.state_dict().items()}


def measure_result(victim: Victim, data: Dataset, objective: Loss, device: torch.device) -> dict[str, Any]:
    """Return the training loss and accuracy of a victim, with the device and the versions that it was trained with."""
    outputs, targets = predict(victim, data.train.inputs), objective.targets(data, data.train).cpu()
    return {
        "loss": objective(outputs, targets.to(outputs) if targets.is_floating_point() else targets).item(),
        "accuracy": accuracy(victim, data.train),
        "device": str(device),
        "versions": {"exhume": __version__, "torch": str(torch.__version__)},
    }
