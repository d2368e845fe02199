"""Train a network and keep its initial and final weights."""

import copy
import math
import time
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
from exhume.records.optimiser_state import read_state
from exhume.records.record import refuse_misfits
from exhume.training.closed_form import solve_flow, weights_at
from exhume.training.loop import TrainingLoop
from exhume.training.losses import LOSSES
from exhume.training.result import copy_weights, measure_result
from exhume.training.settings import Training
from exhume.training.step_size import fast_lr

RETRIES = 5
"""Number of times that a learning rate chosen by the fast schedule is quartered when the training diverges."""


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
        progress: a progress callback.
        checkpoint: a file that the state is saved to every half minute, and continued from when it exists. On a CPU an
            interrupted training ends with the same bits as one that was not. A closed form needs none.
        **settings: the fields of :class:`~exhume.training.Training`: ``loss``, ``lr``, ``steps``, ``seed`` and so on.

    Returns:
        The victim, on the CPU. Its ``training`` is the exact record, chosen learning rate included:
        ``train(data, model=victim.architecture, **victim.training)`` repeats it.

    Raises:
        ExhumeError: when settings and data do not fit, or the training diverges; the message states what to change.
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
    initial = copy_weights(network)

    state = None
    used = asked.resolve(examples=len(inputs), fast_lr=lambda: fast_lr(network, inputs, asked))
    if used.has_closed_form:
        ending = _solve(network, inputs, targets, used)
    else:
        loop = TrainingLoop(
            network=Linearised(network) if used.linearised else network,
            inputs=inputs,
            targets=targets,
            objective=objective,
            settings=used,
            generator=generator,
            retries=RETRIES if asked.lr is None and asked.schedule == "fast" else 0,
        )
        identity = fingerprint(asked.describe() | {"model": model.describe()}, inputs, targets)
        file = None if checkpoint is None else _resume(loop, Checkpoint(Path(checkpoint), identity))
        ended_by = loop.run(progress, file)
        used = loop.settings
        ending = {"steps": loop.step, "ended_by": ended_by, "seconds": loop.seconds}
        if used.keep_optimiser_state and loop.optimiser.state:  # a momentum that rises begins without memory
            state = read_state(loop.optimiser.state_dict(), network).cpu()
    victim = Victim(
        architecture=model,
        initial=initial,
        final=copy_weights(network),
        input_shape=data.input_shape,
        outputs=outputs,
        bounds=data.bounds,
        offset=data.offset,
        linearised=used.linearised,
        optimiser_state=state,
        dataset=data.name,
        training=used.describe(),
    )
    seconds = {"seconds": time.perf_counter() - started}
    return replace(victim, result=measure_result(victim, data, objective, where) | seconds | ending)


def _resume(loop: TrainingLoop, file: Checkpoint) -> Checkpoint:
    """Restore the state that a checkpoint holds, where there is one."""
    saved = file.load()
    if saved is not None:
        with refuse_misfits(file.path, "training"):
            loop.unpack(*saved)
    return file


def _solve(network: nn.Module, inputs: Tensor, targets: Tensor, settings: Training) -> dict[str, Any]:
    """Give the network the final weights of its linearised training, and return how the training ended."""
    model = copy.deepcopy(network).double()
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    wide_inputs, wide_targets = inputs.double(), targets.double()
    flow = solve_flow(model, weights, wide_inputs, wide_targets)
    limit = settings.flow_time()
    moment = flow.time_to(settings.stop_loss or 0.0, limit)
    network.load_state_dict(weights_at(model, weights, wide_inputs, flow, moment))
    ended_by = "loss" if moment < limit else "steps" if math.isfinite(limit) else "convergence"
    return {"steps": 0, "ended_by": ended_by, "flow_time": moment if math.isfinite(moment) else None}
