"""Whether the layers below a layer computed in training what the released network computes.

Features above a batch normalisation belong to their batch if it was normalised by its own statistics: no input has them
in the released network. One gradient shows this: where a normalisation follows a layer, the scale of its weights
changes nothing, so that their gradient is orthogonal to them, unit by unit.
"""

import torch
from torch import Tensor

from exhume.clues.evidence import Evidence
from exhume.models.batch_norm import statistics_changed, with_batch_statistics
from exhume.models.lower_layers import LowerLayers
from exhume.models.passes import PROBES, is_same_in_training
from exhume.records import AttackerView

LEAST_ALONG = 0.3
"""Least cosine of weights and gradients, in units of that of random vectors, of a layer whose scale matters."""


def computes_as_released(view: AttackerView, layer: str, evidence: Evidence) -> bool:
    """Return whether the evidence shows that a layer read in training what it reads in the released network."""
    module = view.module(evidence.after).float().cpu()
    if is_same_in_training(LowerLayers(module, layer), view.input_shape):
        return True
    if not is_same_in_training(LowerLayers(with_batch_statistics(module), layer), view.input_shape):
        return False  # dropout, which leaves no trace that is read here
    if evidence.kind == "weight change":
        if statistics_changed(view.model, evidence.reference, evidence.measured):
            return False
        if view.training.steps != 1:
            return True
    along = [_measure_along(evidence, name) for name in _weights_without_scale(view, layer, evidence)]
    return bool(along) and min(along) > LEAST_ALONG


def _weights_without_scale(view: AttackerView, layer: str, evidence: Evidence) -> list[str]:
    """Return the trained weights below a layer whose scale means nothing if batches are normalised by themselves."""
    module = with_batch_statistics(view.module(evidence.after).float().cpu())
    lower = LowerLayers(module, layer)
    probes = torch.randn(PROBES, *view.input_shape, generator=torch.Generator().manual_seed(0))
    trained, names = evidence.trained(), []
    with torch.no_grad():
        before = lower(probes)
        for name, weight in module.named_parameters():
            if weight.ndim < 2 or name not in trained:
                continue
            weight.mul_(2)
            after = lower(probes)
            weight.div_(2)
            if not torch.equal(after, before) and float((after - before).norm()) < 0.01 * float(before.norm()):
                names.append(name)
    return names


def _measure_along(evidence: Evidence, name: str) -> float:
    """Return the root mean square of the cosines of each unit's weights and gradient, relative to random vectors."""
    weights, gradients = evidence.after[name].double().flatten(1), evidence.change(name).flatten(1)
    cosines: Tensor = torch.nn.functional.cosine_similarity(weights, gradients, dim=1)
    return float(cosines[gradients.norm(dim=1) > 0].square().mean().sqrt() * weights.shape[1] ** 0.5)
