"""Inputs and the range of their values: whether they lie inside it, and the scale at which they fill it."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.rules import CertificateRules
from exhume.records import AttackerView


def is_inside_range(
    view: AttackerView, inputs: Float[Tensor, "row value"], rules: CertificateRules
) -> Bool[Tensor, " row"]:
    """Return which inputs lie in the range of the network's inputs; one that was read out wrongly rarely does."""
    box = view.model_box()
    if box is None or inputs.shape[1] != view.input_size:
        return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    low, high = box
    slack = rules.precision * (high - low)
    return ((inputs > low - slack) & (inputs < high + slack)).all(dim=1)


def range_ends(view: AttackerView, basis: Float[Tensor, "value rank"]) -> Float[Tensor, "bound rank"] | None:
    """Return directions whose products with an input are its distances from the ends of its range, as fractions of it.

    First those of all values from the lower end, then from the upper end. Inputs are in coordinates of a basis whose
    last value is the constant of a bias; at any other scale, the distances are multiplied by it. None where the range
    is unknown.
    """
    box = view.model_box()
    if box is None or len(basis) != view.input_size + 1:
        return None
    low, high = (end.to(basis)[:, None] for end in box)
    return torch.cat([basis[:-1] - low * basis[-1], high * basis[-1] - basis[:-1]]) / (high - low).repeat(2, 1)


def fit_scale(
    view: AttackerView, inputs: Float[Tensor, "row value"], rules: CertificateRules
) -> tuple[Float[Tensor, "row 1"], Bool[Tensor, " row"]]:
    """Find the scale of inputs, which a layer without a bias leaves open: the largest that stays in the range.

    Returns:
        The scales, and for which inputs several values touch the ends of the range there: a coincidence at any scale
        but the true one.
    """
    box = view.model_box()
    if box is None or inputs.shape[1] != view.input_size:
        return torch.ones_like(inputs[:, :1]), torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    low, high = box
    end = torch.where(inputs < 0, low.to(inputs), high.to(inputs))
    solid = (inputs.abs() > 1e-3 * inputs.abs().amax(dim=1, keepdim=True)) & (end.abs() > 1e-6)
    scales = torch.where(solid, end / inputs, torch.full_like(inputs, torch.inf))
    largest = scales.amin(dim=1, keepdim=True)
    touching = (scales <= largest * (1 + rules.touching_distance)).sum(dim=1)
    return largest, touching >= rules.least_touching
