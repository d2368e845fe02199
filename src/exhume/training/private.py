"""Differentially private training through Opacus (the extra ``private``)."""

import math
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP
from exhume.records import Dataset, Victim
from exhume.training.losses import LOSSES
from exhume.training.prediction import accuracy, predict
from exhume.training.settings import LossName

REPORT_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """Settings of DP-SGD (Abadi et al. 2016): clipped gradients of single examples, summed, with Gaussian noise.

    Every step sees every example, which suits the small sets that attacks are measured on: nothing is gained there by
    drawing some of them, and the noise a step needs is shared by all.
    """

    epsilon: float
    """The budget: the likelihood of any outcome changes by at most ``e^ε`` when one example is left out."""
    delta: float | None = None
    """The odds of exceeding the budget; None: a tenth of one over the size of the training set."""
    clip: float = 1.0
    """The longest gradient a single example may have."""
    steps: int = 50
    lr: float = 0.01
    momentum: float = 0.9
    loss: LossName = "mse"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "clip", "lr"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ExhumeError(f"A private training needs a positive {name}, not {getattr(self, name)}.")
        if self.steps < 1:
            raise ExhumeError(f"A private training needs at least one step, not {self.steps}.")


def train_privately(
    data: Dataset,
    settings: PrivateTraining,
    *,
    model: Architecture = MLP(),  # noqa: B008 - frozen
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> Victim:
    """Train ``model`` under a privacy budget.

    Args:
        data: what to train on; its offset is subtracted first, so it must be public or part of no claim.
        settings: the budget and how it is spent.
        model: the architecture; Opacus must know its layers.
        device: ``auto`` takes a GPU when there is one.
        progress: hears where the training stands.

    Returns:
        The victim, on the CPU; its ``training`` holds the settings and the noise they came to.

    Raises:
        ExhumeError: when Opacus is not installed or does not know a layer of the model.
    """
    try:
        from opacus import GradSampleModule
        from opacus.accountants.utils import get_noise_multiplier
        from opacus.optimizers import DPOptimizer
        from opacus.validators import ModuleValidator
    except ImportError as error:
        raise ExhumeError(
            "Private training needs Opacus, which is not installed; run pip install 'exhume[private]'."
        ) from error
    started, where, size = time.perf_counter(), resolve_device(device), len(data.train)
    delta = 0.1 / size if settings.delta is None else settings.delta
    objective = LOSSES[settings.loss]
    network = model.build(data.input_shape, objective.outputs(data), torch.Generator().manual_seed(settings.seed)).to(
        where
    )
    if not all(type(layer) in (nn.Linear, nn.Conv2d) or not list(layer.parameters(recurse=False))
               for layer in network.modules()) or ModuleValidator.validate(network):  # fmt: skip
        raise ExhumeError(f"Opacus cannot clip the gradients of every layer of {model}; take a plain MLP or convnet.")
    initial = {name: weight.detach().cpu().clone() for name, weight in network.state_dict().items()}
    noise = get_noise_multiplier(
        target_epsilon=settings.epsilon, target_delta=delta, sample_rate=1.0, steps=settings.steps
    )
    wrapped = GradSampleModule(network, loss_reduction="mean")
    optimiser = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=settings.lr, momentum=settings.momentum),
        noise_multiplier=noise,
        max_grad_norm=settings.clip,
        expected_batch_size=size,
        loss_reduction="mean",
        generator=torch.Generator(where).manual_seed(settings.seed + 1),
    )
    inputs = data.to_model(data.train.inputs.to(where))
    targets = objective.targets(data, data.train).to(where)
    for step in range(settings.steps):
        optimiser.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the inputs need no gradient is meant
            objective(wrapped(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step % REPORT_STEPS == 0 or step + 1 == settings.steps:
            progress("train privately", step + 1, settings.steps, f"epsilon {settings.epsilon:g}")
    training: dict[str, Any] = asdict(settings) | {"delta": delta, "noise_multiplier": noise, "optimiser": "dp-sgd"}
    victim = Victim(
        architecture=model,
        initial=initial,
        final={name: weight.detach().cpu().clone() for name, weight in network.state_dict().items()},
        input_shape=data.input_shape,
        outputs=objective.outputs(data),
        bounds=data.bounds,
        offset=data.offset,
        dataset=data.name,
        training=training,
    )
    said = predict(victim, data.train.inputs)
    result = {
        "loss": objective(said, targets.cpu()).item(),
        "accuracy": accuracy(victim, data.train),
        "steps": settings.steps,
        "seconds": time.perf_counter() - started,
        "device": str(where),
    }
    return Victim(**{**vars(victim), "result": result})
