"""Outputs and accuracy of a trained network."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.models.tangent import add_all, compute_outputs, jacobian_vector_product, widen
from exhume.records import AttackerView, Split, Victim

CHUNK = 4096
"""Number of examples per forward pass, so that memory does not grow with a test set."""


@torch.no_grad()
def predict(network: Victim | AttackerView, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example output"]:
    """Return the outputs of a released network for inputs in pixel units, on the device of its weights.

    A linearised network without known initial weights is evaluated as the network that its final weights make.
    """
    view = network.view() if isinstance(network, Victim) else network
    model, final = view.module(view.final), widen(view.final)
    initial = None if view.initial is None else widen(view.initial)
    like = next(weight for weight in final.values() if weight.is_floating_point())
    chunks = torch.split(view.to_model(inputs.to(like)), CHUNK)
    if view.linearised and initial is not None:
        change = {name: final[name] - weight for name, weight in initial.items()}
        return torch.cat([add_all(jacobian_vector_product(model, initial, chunk, change)) for chunk in chunks])
    return torch.cat([compute_outputs(model, final, chunk) for chunk in chunks])


def classify(outputs: Float[Tensor, "example output"]) -> Int[Tensor, " example"]:
    """Return the class of each row: by sign for one output, else the largest.

    >>> classify(torch.tensor([[-0.5], [2.0]]))
    tensor([0, 1])
    """
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def accuracy(network: Victim | AttackerView, split: Split) -> float:
    """Return the fraction of a split that a released network classifies as labelled; NaN for an empty split."""
    if len(split) == 0:  # not every network takes an empty batch
        return math.nan
    predicted = classify(predict(network, split.inputs))
    return (predicted.cpu() == split.labels.cpu()).double().mean().item()
