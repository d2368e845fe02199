"""Measure what an attack found, where need be in the units of the layer it was read off."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.clues import clues_of
from exhume.core.json_values import to_json_value
from exhume.evaluation import evaluate
from exhume.evaluation.network import network_findings, threat_model
from exhume.records import AttackerView, Dataset, Evaluation, Reconstruction, Split

UNLABELLED = ("",)
"""The classes of data whose targets are no classes."""


def measured(found: Reconstruction, data: Dataset | None, view: AttackerView | None = None) -> Evaluation:
    """Lay what was found beside the data and beside its null.

    An attack on a head above frozen features recovers features; so the data is compared as that head sees it.
    """
    if view is None or data is None:
        return evaluate(found, data, victim=view)
    if tuple(found.inputs.shape[1:]) == view.input_shape:
        evaluation = evaluate(found, data, victim=view)
    else:
        about = {"given": to_json_value(threat_model(view)), "network": network_findings(view, data)}
        evaluation = replace(evaluate(found, as_seen(data, view, clues_of(view).require_first_layer().name)), **about)
    if data.classes != UNLABELLED:
        return evaluation
    return replace(
        evaluation, network={name: value for name, value in evaluation.network.items() if "accuracy" not in name}
    )


def as_seen(data: Dataset, view: AttackerView, layer: str) -> Dataset:
    """Return the data as inputs of a layer of the network, flat and without a range."""

    def features(split: Split) -> Split:
        return replace(split, inputs=layer_inputs(view, layer, split.inputs))

    return replace(
        data,
        name=f"{data.name}, as layer {layer} sees it",
        train=features(data.train),
        holdout=features(data.holdout),
        test=None,
        bounds=None,
        offset=None,
        features=None,
    )


def layer_inputs(
    view: AttackerView, layer: str, inputs: Float[Tensor, "example ..."]
) -> Float[Tensor, "example feature"]:
    """Return what a layer of the released network reads for these inputs."""
    if len(inputs) == 0:
        return inputs.new_zeros(0, 1)
    model = view.module(view.final)
    like = next(weight for weight in view.final.values() if weight.is_floating_point())
    seen: list[Tensor] = []
    handle = model.get_submodule(layer).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        with torch.no_grad():
            model(view.to_model(inputs.to(like)))
    finally:
        handle.remove()
    return seen[0].reshape(len(inputs), -1).cpu().to(inputs.dtype)
