"""What can be said of the attacked network itself, and what its attacker was given."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.kernels import empirical_ntk, kernel_distance
from exhume.models.tangent import compute_outputs, jacobian_vector_product
from exhume.records import AttackerView, Dataset, Split


def threat_model(view: AttackerView) -> dict[str, Any]:
    """Return everything the attacker held, as JSON values with the names a report prints."""
    offset = view.offset
    return {
        "final weights": True,
        "initial weights": view.initial is not None,
        "architecture": type(view.model).__name__ if view.architecture is None else repr(view.architecture),
        "input shape": list(view.input_shape),
        "value range": None if view.bounds is None else list(view.bounds),
        "subtracted before use": None
        if offset is None
        else (offset.flatten().tolist() if offset.numel() <= 3 else f"an input of shape {tuple(offset.shape)}"),
        "dynamics": "linearised around the initial weights" if view.linearised else "standard",
        "training": view.training.facts(),
        "training inputs": False,
        "training labels": False,
    }


def network_findings(view: AttackerView, data: Dataset) -> dict[str, float]:
    """Return the kernel distance over training, and the accuracy on training data and on data never seen.

    Without a test split the held-out examples stand in; without initial weights there is no kernel distance.
    """
    findings = {
        "train_accuracy": accuracy(view, data, data.train),
        "test_accuracy": accuracy(view, data, data.holdout if data.test is None else data.test),
    }
    if view.initial is not None:
        findings["kernel_distance"] = kernel_movement(view, data)
    return findings


def kernel_movement(view: AttackerView, data: Dataset) -> float:
    """Return how far training bent the tangent kernel on the training inputs; 0 for a linearised network."""
    assert view.initial is not None
    if view.linearised:  # its gradients do not depend on its weights
        return 0.0
    model, inputs = view.module(view.final), _as_network_input(view, data.to_model(data.train.inputs))
    before, after = (empirical_ntk(model, weights, inputs) for weights in (view.initial, view.final))
    return float(kernel_distance(before.double(), after.double()))


def accuracy(view: AttackerView, data: Dataset, split: Split) -> float:
    """Return the fraction of a split that the released network puts into the right class; NaN for an empty split."""
    if len(split) == 0:  # not every network takes none at all
        return float("nan")
    model, inputs = view.module(view.final), _as_network_input(view, data.to_model(split.inputs))
    with torch.no_grad():
        if view.linearised and view.initial is not None:
            change = {name: view.final[name] - start for name, start in view.initial.items()}
            outputs = sum(jacobian_vector_product(model, view.initial, inputs, change))
        else:
            outputs = compute_outputs(model, view.final, inputs)
    assert isinstance(outputs, Tensor)
    predicted = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
    return float((predicted.cpu() == split.labels.cpu()).double().mean())


def _as_network_input(view: AttackerView, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
    floating = next(weight for weight in view.final.values() if weight.is_floating_point())
    return inputs.to(floating)
