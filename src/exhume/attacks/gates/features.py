"""Rows of a layer that reads features: how precise they must be, and what they may be."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.certificate import Certificate, Doubt
from exhume.attacks.gates.input_range import is_inside_range
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.rules import CertificateRules
from exhume.clues.first_layer import FirstLayer
from exhume.inversion.through_trunk import are_non_negative
from exhume.records import AttackerView


def in_units_of_features(problem: RowProblem, layer: FirstLayer, inputs: Float[Tensor, "row value"]) -> RowProblem:
    """Return the problem with a precision relative to the size of features, which have no range of their own.

    The size is that of the largest value of a typical row, as 1 is for pixels.
    """
    if layer.reads_input or len(inputs) == 0:
        return problem
    size = float(inputs.abs().amax(dim=1).median())
    precision = max(problem.certificate.precision * size, torch.finfo(torch.float64).tiny)
    return replace(problem, certificate=replace(problem.certificate, precision=precision))


def doubt_features(
    certificate: Certificate,
    view: AttackerView,
    layer: FirstLayer,
    inputs: Float[Tensor, "row value"],
    rules: CertificateRules,
) -> Certificate:
    """Add the doubts that concern features: that they moved, or that the layers below cannot have made them."""
    if layer.reads_input:
        return certificate
    every = torch.ones(len(inputs), dtype=torch.bool)
    certificate = certificate.with_doubt(Doubt.MOVED, every & (not layer.inputs_stood_still))
    if not are_non_negative(view, layer.name, layer.evidence.after):
        return certificate.with_doubt(Doubt.FEATURES, every)
    return certificate.with_doubt(Doubt.FEATURES, (inputs < -rules.precision).any(dim=1).cpu())


def is_plausible(
    view: AttackerView, layer: FirstLayer, inputs: Float[Tensor, "row value"], rules: CertificateRules
) -> Bool[Tensor, " row"]:
    """Return which inputs of a layer lie inside their range: that of pixels, or that of features after a ReLU."""
    if layer.reads_input:
        return is_inside_range(view, inputs, rules)
    if not are_non_negative(view, layer.name, layer.evidence.after):
        return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    slack = rules.precision * inputs.abs().amax(dim=1, keepdim=True)
    return (inputs >= -slack).all(dim=1)
