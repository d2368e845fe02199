"""Batch normalisation as a training uses it: normalised by the batch, without memory."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

STATISTICS = ("running_mean", "running_var")
"""Buffers that hold the running statistics of a layer."""


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch normalisations of a model that keep running statistics, by name."""
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None
    }


def with_batch_statistics(model: nn.Module) -> nn.Module:
    """Return a copy that normalises each batch by its own statistics, as in training, and is otherwise evaluated.

    It keeps no running statistics, so that its outputs are a function of weights and inputs alone. Dropout is off.

    >>> layer = with_batch_statistics(nn.BatchNorm1d(2, affine=False))
    >>> layer(torch.tensor([[1.0, 3.0], [3.0, 3.0]])).round().tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    made = copy.deepcopy(model).eval()
    for layer in batch_norms(made).values():
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    return made


def statistics_changed(model: nn.Module, initial: Mapping[str, Tensor], final: Mapping[str, Tensor]) -> bool:
    """Return whether a training changed any running statistics, which shows that it normalised by batches."""
    names = [f"{name}.{kind}".removeprefix(".") for name in batch_norms(model) for kind in STATISTICS]
    return any(not torch.equal(initial[name], final[name]) for name in names)


@contextmanager
def record_statistics(model: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, Float[Tensor, " statistic"]]]:
    """Record the batch statistics of named layers during a forward pass: means, then variances without bias.

    These are what a step of a training adds to the running statistics.
    """
    recorded: dict[str, Tensor] = {}

    def recorder(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def record(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            others = [dimension for dimension in range(inputs[0].ndim) if dimension != 1]
            recorded[name] = torch.cat([inputs[0].mean(others), inputs[0].var(others)])

        return record

    handles = [model.get_submodule(name).register_forward_pre_hook(recorder(name)) for name in layers]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()
