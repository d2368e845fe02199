"""Differentially private training through Opacus (the extra ``private``)."""

import time
import warnings
from dataclasses import asdict, replace
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import nn

from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.core.settings import settings
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP
from exhume.records import Dataset, Victim
from exhume.training.losses import LOSSES
from exhume.training.result import copy_weights, measure_result
from exhume.training.settings import LossName, Momentum

REPORT_STEPS = 10
"""Number of steps between two progress reports."""


@settings
class PrivateTraining:
    """Settings of DP-SGD (Abadi et al. 2016): clipped gradients of single examples, summed, with Gaussian noise.

    Every step uses every example. Attacks are measured on small training sets, where sampling gains nothing: the noise
    per step is shared by all examples.
    """

    epsilon: PositiveFloat
    """Privacy budget: the likelihood of any outcome changes by at most ``e^ε`` when one example is left out."""
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Probability of exceeding the budget; None: 0.1 divided by the size of the training set."""
    clip: PositiveFloat = 1.0
    """Largest norm of the gradient of one example."""
    steps: PositiveInt = 50
    lr: PositiveFloat = 0.01
    momentum: Momentum = 0.9
    loss: LossName = "mse"
    seed: int = 0


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
        model: the architecture; Opacus must support its layers.
        device: ``auto`` takes a GPU when there is one.
        progress: a progress callback.

    Returns:
        The victim, on the CPU; its ``training`` holds the settings and the noise they came to.

    Raises:
        ExhumeError: when Opacus is not installed or does not support a layer of the model.
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
    initial = copy_weights(network)
    with warnings.catch_warnings():
        # While it searches, Opacus warns that a wider range of orders may give a tighter bound; the bound holds anyway.
        warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
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
            warnings.simplefilter("ignore")  # Opacus warns that inputs need no gradient, which is intended
            objective(wrapped(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step % REPORT_STEPS == 0 or step + 1 == settings.steps:
            progress("train privately", step + 1, settings.steps, f"epsilon {settings.epsilon:g}")
    training: dict[str, Any] = asdict(settings) | {"delta": delta, "noise_multiplier": noise, "optimiser": "dp-sgd"}
    victim = Victim(
        architecture=model,
        initial=initial,
        final=copy_weights(network),
        input_shape=data.input_shape,
        outputs=objective.outputs(data),
        bounds=data.bounds,
        offset=data.offset,
        dataset=data.name,
        training=training,
    )
    ending = {"steps": settings.steps, "seconds": time.perf_counter() - started}
    return replace(victim, result=measure_result(victim, data, objective, where) | ending)
