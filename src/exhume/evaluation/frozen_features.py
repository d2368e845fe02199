"""Attacks on a network above frozen layers recover features; so the data is turned into features to compare with."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.clues.clues import clues_of
from exhume.clues.first_layer import layer_inputs
from exhume.core.errors import DataError, Refusal
from exhume.records import AttackerView, Dataset, Reconstruction


def in_units_of(found: Reconstruction, data: Dataset, view: AttackerView | None) -> Dataset:
    """Return the data in the units of the reconstruction: as it is, or as inputs of the layer that was read.

    Raises:
        DataError: when the reconstruction holds neither inputs like those of the data nor features of them.
    """
    shape = tuple(found.inputs.shape[1:])
    if shape == data.input_shape:
        return data
    if view is not None and view.input_shape == data.input_shape:
        try:
            layer = found.diagnostics.get("layer") or clues_of(view).require_first_layer().name
        except Refusal:  # no trained layer can be read, so there are no features either
            layer = None
        if layer in dict(view.model.named_modules()):
            features = as_layer_inputs(data, view, str(layer))
            if shape == features.input_shape:
                return features
    raise DataError(
        f"The reconstruction holds inputs of shape {shape}, the data set {data.name} of shape {data.input_shape}."
    )


def as_layer_inputs(data: Dataset, view: AttackerView, layer: str) -> Dataset:
    """Return the data as inputs of a layer of the network, flat, with one range for all features.

    The range is that of all examples. Some features hardly vary, so that errors in units of each one's own deviation
    would say nothing.
    """
    train, holdout = (
        replace(split, inputs=features_of(view, layer, split.inputs)) for split in (data.train, data.holdout)
    )
    every = torch.cat([train.inputs.flatten(), holdout.inputs.flatten()])
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 0.0)
    return replace(
        data,
        name=f"{data.name}, as layer {layer} sees it",
        train=train,
        holdout=holdout,
        test=None,
        bounds=(low, high) if low < high else None,
        offset=None,
        features=None,
    )


def features_of(
    view: AttackerView, layer: str, inputs: Float[Tensor, "example ..."]
) -> Float[Tensor, "example feature"]:
    """Return what a layer of the released network reads for inputs in pixel units, flat."""
    model = view.module(view.final)
    like = next(model.parameters())
    # Not every network takes an empty batch; one example in its place tells the number of features.
    batch = inputs if len(inputs) else inputs.new_zeros(1, *view.input_shape)
    seen = layer_inputs(model, layer, view.to_model(batch.to(like)))
    return seen.reshape(len(batch), -1)[: len(inputs)].cpu().to(inputs.dtype)
