"""Train a network and keep both ends of the training."""

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exhume.core.checkpoint import Checkpoint, fingerprint
from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress, no_progress
from exhume.models.architecture import Architecture
from exhume.models.linearised import Linearised
from exhume.models.mlp import MLP
from exhume.records import Dataset, Victim
from exhume.records.record import refuse_misfits
from exhume.training.descent import Descent
from exhume.training.lazy import lazily_trained, lazy_flow
from exhume.training.losses import LOSSES
from exhume.training.prediction import accuracy, predict
from exhume.training.settings import Training
from exhume.training.step_size import fast_lr
from exhume.version import __version__

RETRIES = 5
"""How often a learning rate that nobody asked for is quartered when the training diverges under it."""


def train(
    data: Dataset,
    *,
    model: Architecture = MLP(),  # noqa: B008 - frozen
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    checkpoint: Path | str | None = None,
    **settings: Any,
) -> Victim:
    """Train ``model`` on the training split of ``data``.

    Args:
        data: what to train on; its offset is subtracted first.
        model: the architecture. Its weights are drawn from ``seed`` alone.
        device: ``auto`` takes a GPU when there is one.
        progress: hears where the training stands.
        checkpoint: a file to save the state to every half minute, and to continue from when it is there. On a CPU an
            interrupted training ends with the same bits as one that was not. A closed form needs none.
        **settings: the fields of :class:`~exhume.training.Training`: ``loss``, ``lr``, ``steps``, ``seed`` and so on.

    Returns:
        The victim, on the CPU. Its ``training`` is the exact record, chosen learning rate included:
        ``train(data, model=victim.architecture, **victim.training)`` repeats it.

    Raises:
        ExhumeError: when settings and data do not fit, or the training diverges; the message says what to change.
    """
    asked = Training(**settings)
    if len(data.train) == 0:
        raise ExhumeError(f"The data set {data.name} has no training examples.")
    if not bool(torch.isfinite(data.train.inputs).all()):
        raise ExhumeError(f"The training inputs of {data.name} hold NaN or infinite values; remove those examples.")
    started = time.perf_counter()
    where, dtype = resolve_device(device), getattr(torch, asked.precision)
    objective = LOSSES[asked.loss]
    outputs = objective.outputs(data)
    targets = objective.targets(data, data.train).to(where)
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    inputs = data.to_model(data.train.inputs.to(where, dtype))
    generator = torch.Generator().manual_seed(asked.seed)
    network = model.build(data.input_shape, outputs, generator).to(where, dtype)
    initial = _copied(network.state_dict())

    used = asked.resolved(examples=len(inputs), fast_lr=lambda: fast_lr(network, inputs, asked))
    if used.has_closed_form:
        result = _solve(network, inputs, targets, used)
    else:
        descent = Descent(
            network=Linearised(network) if used.linearised else network,
            inputs=inputs,
            targets=targets,
            objective=objective,
            settings=used,
            generator=generator,
            retries=RETRIES if asked.lr is None and asked.schedule == "fast" else 0,
        )
        identity = fingerprint(asked.describe() | {"model": model.describe()}, inputs, targets)
        file = None if checkpoint is None else _resume(descent, Checkpoint(Path(checkpoint), identity))
        end = descent.run(progress, file)
        used = descent.settings
        result = {"steps": descent.step, "ended_by": end, "seconds": descent.seconds}
    victim = Victim(
        architecture=model,
        initial=initial,
        final=_copied(network.state_dict()),
        input_shape=data.input_shape,
        outputs=outputs,
        bounds=data.bounds,
        offset=data.offset,
        linearised=used.linearised,
        dataset=data.name,
        training=used.describe(),
    )
    said = predict(victim, data.train.inputs)
    measured = {
        "loss": objective(said, targets.cpu()).item(),
        "accuracy": accuracy(victim, data.train),
        "seconds": time.perf_counter() - started,
        "device": str(where),
        "versions": {"exhume": __version__, "torch": str(torch.__version__)},
    }
    return replace(victim, result=measured | result)


def _resume(descent: Descent, file: Checkpoint) -> Checkpoint:
    """Bring a training to where its file left it, if there is one yet."""
    saved = file.load()
    if saved is not None:
        with refuse_misfits(file.path, "training"):
            descent.unpack(*saved)
    return file


def _solve(network: nn.Module, inputs: Tensor, targets: Tensor, settings: Training) -> dict[str, Any]:
    """Give the network the weights its linearised training ends with, and return how it ended."""
    model = copy.deepcopy(network).double()
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    wide_inputs, wide_targets = inputs.double(), targets.double()
    flow = lazy_flow(model, weights, wide_inputs, wide_targets)
    limit = settings.flow_time()
    moment = flow.time_to(settings.stop_loss or 0.0, limit)
    network.load_state_dict(lazily_trained(model, weights, wide_inputs, flow, moment))
    end = "loss" if moment < limit else "steps" if math.isfinite(limit) else "convergence"
    return {"steps": 0, "ended_by": end, "flow_time": moment if math.isfinite(moment) else None}


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().cpu().clone() for name, weight in weights.items()}
