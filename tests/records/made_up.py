"""Records made up at random, and small ones to change by hand."""

import dataclasses
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, OptimiserState, Outcome, Reconstruction, Split, Victim

floating = st.sampled_from([torch.float16, torch.float32, torch.float64])
awkward = st.text(max_size=20) | st.sampled_from(["", "\0", "a/b", "\ud800", "‮ × −", '"}{', "None", "kind"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | awkward,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(awkward, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(awkward, json_values, max_size=3)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
bounds = st.none() | st.tuples(st.floats(-10, 0), st.floats(1, 10))


@st.composite
def tensors(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype, finite: bool = False) -> Tensor:
    """Random values, laid out in memory this way or that, with the awkward ones among them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    values = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if values.numel() and not finite:
        special = draw(st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 6e-8, 65504.0]))
        values.view(-1)[draw(st.integers(0, values.numel() - 1))] = special
    return values.mT.contiguous().mT if values.ndim >= 2 and draw(st.booleans()) else values


@st.composite
def splits(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype, outputs: int) -> Split:
    count = draw(st.integers(0, 4))
    return Split(
        inputs=draw(tensors((count, *shape), dtype)),
        labels=torch.arange(count) % 2,
        targets=draw(st.none() | tensors((count, outputs), dtype)),
    )


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    shape, dtype, outputs = draw(shapes), draw(floating), draw(st.integers(1, 3))
    split = splits(shape, dtype, outputs)
    return Dataset(
        name=draw(awkward),
        train=draw(split),
        holdout=draw(split),
        test=draw(st.none() | split),
        classes=tuple(draw(st.lists(awkward, max_size=4))),
        bounds=draw(bounds),
        offset=draw(st.none() | tensors(shape, dtype)),
        features=draw(st.none() | st.lists(awkward, max_size=3).map(tuple)),
    )


@st.composite
def victims(draw: st.DrawFn) -> Victim:
    architecture = MLP(
        width=draw(st.integers(1, 4)),
        depth=draw(st.integers(0, 2)),
        bias=draw(st.sampled_from(["all", "first", "none"])),
        parameterisation=draw(st.sampled_from(["standard", "ntk"])),
    )
    input_shape, outputs, dtype = draw(shapes.filter(len)), draw(st.integers(1, 3)), draw(floating)
    empty = architecture.build(input_shape, outputs).state_dict()
    initial, final = (
        {name: draw(tensors(tuple(tensor.shape), dtype, finite=True)) for name, tensor in empty.items()}
        for _ in range(2)
    )
    return Victim(
        architecture=architecture,
        initial=initial,
        final=final,
        input_shape=input_shape,
        outputs=outputs,
        bounds=draw(bounds),
        offset=draw(st.none() | tensors(input_shape, dtype)),
        linearised=draw(st.booleans()),
        optimiser_state=draw(st.none() | st.just(OptimiserState(first_moment=final, slot="exp_avg", steps=3, lr=0.1))),
        dataset=draw(awkward),
        training=draw(json_objects),
        result=draw(json_objects),
    )


@st.composite
def reconstructions(draw: st.DrawFn) -> Reconstruction:
    count, shape, dtype = draw(st.integers(0, 4)), draw(shapes), draw(floating)
    return Reconstruction(
        inputs=draw(tensors((count, *shape), dtype)),
        certified=torch.arange(count) % 2 == 0,
        confidence=draw(tensors((count,), dtype)),
        duals=draw(st.none() | tensors((count, 2), dtype)),
        p_values=draw(st.none() | tensors((count,), torch.float64)),
        outcome=draw(st.sampled_from(Outcome)),
        message=draw(awkward),
        history=draw(st.none() | tensors((3,), dtype)),
        diagnostics=draw(json_objects),
        attack=draw(awkward),
        seed=draw(st.integers()),
        seconds=draw(st.floats(0, 1e9)),
    )


def make_victim(**changes: Any) -> Victim:
    architecture = MLP(width=3, depth=1)
    weights = architecture.build((1, 2, 2), 1).state_dict()
    fields: dict[str, Any] = {
        "architecture": architecture,
        "initial": weights,
        "final": weights,
        "input_shape": (1, 2, 2),
        "outputs": 1,
        "bounds": (0.0, 1.0),
        "dataset": "made up",
    }
    return Victim(**fields | changes)


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1))


RECORDS: dict[str, tuple[st.SearchStrategy[Any], type[Any]]] = {
    "dataset": (datasets(), Dataset),
    "victim": (victims(), Victim),
    "view": (victims().map(Victim.view), AttackerView),
    "start unknown": (victims().map(lambda victim: dataclasses.replace(victim.view(), initial=None)), AttackerView),
    "reconstruction": (reconstructions(), Reconstruction),
}
