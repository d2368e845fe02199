"""Facts about the attacked network itself, and what its attacker was given."""

from typing import Any

from exhume.kernels import empirical_ntk, kernel_distance
from exhume.models.tangent import SLICE, matching_stack, widen
from exhume.records import AttackerView, Dataset, count_outputs
from exhume.training.prediction import accuracy

UNLABELLED = ("",)
"""The classes of a data set whose targets are not classes."""
MOST_SLICES = 4
"""Largest number of slices of a Jacobian from which a kernel is computed; the time grows with its square."""


def threat_model(view: AttackerView) -> dict[str, Any]:
    """Return everything the attacker held, as JSON values with the names a report prints."""
    offset = view.offset
    return {
        "final weights": True,
        "initial weights": view.initial is not None,
        "gradient": f"{1 + len(view.more_gradients)}, of the same data" if view.more_gradients else bool(view.gradient),
        "optimiser state": False if view.optimiser_state is None else (view.optimiser_state.describe() or True),
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
    """Return the kernel distance over training, and the accuracy on training data and on unseen data.

    Without a test split the accuracy on unseen data is that on the held-out examples. There is no kernel distance
    without initial weights or where the Jacobian is too large, and no accuracy where the targets are not classes.
    """
    findings = {}
    if data.classes != UNLABELLED:
        findings["train_accuracy"] = accuracy(view, data.train)
        findings["test_accuracy"] = accuracy(view, data.holdout if data.test is None else data.test)
    if view.initial is not None and _has_small_jacobian(view, data):
        findings["kernel_distance"] = kernel_movement(view, data)
    return findings


def _has_small_jacobian(view: AttackerView, data: Dataset) -> bool:
    """Return whether the kernel takes seconds: from a closed form, or from a Jacobian of a few slices.

    With 40 images and 6 million weights below ten outputs it would take minutes.
    """
    inputs = view.to_model(data.train.inputs[:1])
    if view.linearised or matching_stack(view.model, inputs) is not None:
        return True
    parameters = sum(weight.numel() for weight in view.model.parameters())
    return len(data.train) * parameters * count_outputs(view.model, view.input_shape) <= MOST_SLICES * SLICE


def kernel_movement(view: AttackerView, data: Dataset) -> float:
    """Return how far training changed the tangent kernel on the training inputs; 0 for a linearised network."""
    assert view.initial is not None
    if view.linearised:  # its gradients do not depend on its weights
        return 0.0
    initial, final = widen(view.initial), widen(view.final)
    like = next(weight for weight in final.values() if weight.is_floating_point())
    model, inputs = view.module(final), view.to_model(data.train.inputs.to(like))
    initial = {name: weight.to(final[name]) for name, weight in initial.items()}
    before, after = (empirical_ntk(model, weights, inputs) for weights in (initial, final))
    return float(kernel_distance(before.double(), after.double()))
