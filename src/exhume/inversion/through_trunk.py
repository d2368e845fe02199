"""From the features that a layer of a network read back to the inputs of the network."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.core.run_context import RunContext
from exhume.core.text import count_noun
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.gauss_newton import InputBox, Trunk
from exhume.inversion.invert import Inversion, Preimage, invert
from exhume.inversion.rules import InversionRules
from exhume.inversion.search import SearchRules
from exhume.models.lower_layers import LowerLayers
from exhume.records import AttackerView, Outcome, Reconstruction, Weights

PER_INPUT = (
    "agreement", "contradictions", "doubts", "error_bounds", "feature_error_bounds", "preimages", "free_directions",
    "feature_residuals", "labels",
)  # fmt: skip
"""Diagnostics with one entry per input."""
PROBES = 64
"""Number of random inputs by which the range of features is probed."""
UNDETERMINED = "its features do not determine the input, or no input was found that has them"
"""Why an input with certified features has no certificate."""
OTHER_PASS = "its features may belong to its batch alone, because layers below compute something else in training"
"""Why features above a normalisation by batches have no certificate."""


@dataclass(frozen=True, kw_only=True)
class SpanProof:
    """What proves inputs that the span of all features singles out (:mod:`exhume.inversion.isolation`)."""

    span: FeatureSpan
    log_p: Callable[[Float[Tensor, "input feature"]], Float[Tensor, " input"]]
    """Bounds the log probability that inputs with these features were not trained on; those that are proven already
    come first."""
    error_rate: float
    """The probability, over all inputs, of certifying anything that was not trained on."""


def trunk_of(view: AttackerView, layer: str, weights: Weights) -> Trunk:
    """Return the function from network inputs to the inputs of a layer, flat, at given weights."""
    single, double = (LowerLayers(view.module(weights).to(kind), layer) for kind in (torch.float32, torch.float64))

    def trunk(inputs: Tensor) -> Tensor:
        features: Tensor = (double if inputs.dtype == torch.float64 else single)(inputs)
        return features

    return trunk


def are_non_negative(view: AttackerView, layer: str, weights: Weights) -> bool:
    """Return whether random inputs have features without a negative value, as after a ReLU."""
    generator = torch.Generator().manual_seed(0)
    box = view.model_box()
    probes = torch.rand(PROBES, view.input_size, generator=generator).to(view.device)
    probes = 4 * probes - 2 if box is None else box[0] + (box[1] - box[0]) * probes
    with torch.no_grad():
        return bool((trunk_of(view, layer, weights)(probes.float().reshape(-1, *view.input_shape)) >= 0).all())


def invert_features(
    view: AttackerView,
    layer: str,
    weights: Weights,
    found: Reconstruction,
    context: RunContext,
    *,
    descents: int,
    as_released: bool,
    unknown_error: float = 1e-2,
    proof: SpanProof | None = None,
) -> Reconstruction:
    """Turn a reconstruction of features into one of inputs, unless the features say more.

    An input is certified if its features are and they determine it, or by the span of all features (``proof``). Where
    no input is determined, certified features stay. Nothing is certified unless the layers below computed features
    ``as_released``: a normalisation of the input by its batch changes which input has them.
    ``found.diagnostics`` must hold ``error_bounds`` and ``doubts``. Where an error is unknown, the search takes it to
    be ``unknown_error`` of the size of the features, which certifies nothing.
    """
    if len(found) == 0:
        return found
    found, proof = found.cpu(), proof if as_released else None
    bounds = torch.tensor([float("inf") if e is None else e for e in found.diagnostics["error_bounds"]])
    features = found.inputs.double()
    sizes = features.norm(dim=1) / features.shape[1] ** 0.5
    errors = torch.where(bounds.isfinite(), bounds.to(sizes), unknown_error * sizes)
    rules = InversionRules(search=SearchRules(descents=descents))
    trunk = trunk_of(view, layer, weights)
    inverse = invert(
        trunk,
        features.to(view.device),
        box_of(view),
        context,
        errors=errors.to(view.device),
        span=None if proof is None else proof.span,
        to_isolate=~found.certified,
        rules=rules,
    )
    is_determined = torch.tensor([outcome == Preimage.DETERMINED for outcome in inverse.outcomes])
    known = found.certified & as_released
    doubts = _add_doubt(found.diagnostics["doubts"], torch.full_like(known, as_released), OTHER_PASS)
    is_proven = torch.zeros_like(known)
    if proof is not None:
        log_p = _log_p_isolated(trunk, inverse, known & is_determined, proof, rules.precision)
        is_proven = log_p < math.log(proof.error_rate)
        found = _with_proofs(found, is_proven, log_p)
        doubts = ["" if proven else doubt for doubt, proven in zip(doubts, is_proven.tolist(), strict=True)]
        is_determined |= is_proven
    about = {
        "certified_features": int(known.sum()),
        "feature_error_bounds": found.diagnostics["error_bounds"],
        "preimages": [outcome.value for outcome in inverse.outcomes],
        "free_directions": inverse.free,
        "feature_residuals": inverse.residuals.tolist(),
        "certified_by_span": int(is_proven.sum()),
    }
    total = found.diagnostics.get("training_size_estimate")
    of_all = "" if total is None else f" of {count_noun(total, 'training input')}"
    is_reached = any(outcome != Preimage.NOT_REACHED for outcome in inverse.outcomes)
    # Fewer features than values leave an image open; as many determine it up to the error of the features.
    has_images = is_reached and features.shape[1] >= view.input_size and not bool(known.any() | is_proven.any())
    if not bool(is_determined.any()) and not has_images:
        return replace(
            found,
            certified=known,
            outcome=Outcome.PARTIAL if bool(known.any()) else Outcome.NOTHING_FOUND,
            message=f"The features of {int(known.sum())}{of_all or ' inputs'}, as layer {layer!r} reads them, are "
            f"certified; no input was determined by them.{'' if as_released else f' The reason: {OTHER_PASS}.'}",
            diagnostics={**found.diagnostics, **about, "doubts": doubts, "features_of": layer},
        )
    certified = (known & is_determined) | is_proven
    doubts = _add_doubt(doubts, is_determined, UNDETERMINED)
    count = int(certified.sum())
    outcome = Outcome.PARTIAL if count else Outcome.NOTHING_FOUND
    limits = [error if sure else None for error, sure in zip(inverse.errors.tolist(), is_determined, strict=True)]
    by_span = f", {int(is_proven.sum())} of them by the span of all features" if bool(is_proven.any()) else ""
    images = replace(
        found,
        inputs=view.to_pixels(inverse.inputs.to(view.device).float()).cpu(),
        certified=certified,
        confidence=found.confidence * is_determined.to(found.confidence),
        outcome=Outcome.CERTIFIED if count == total else outcome,
        message=f"{count}{of_all or ' inputs'} {'is' if count == 1 else 'are'} certified, through the features of "
        f"layer {layer!r}{by_span}.",
        diagnostics={**found.diagnostics, **about, "doubts": doubts, "error_bounds": limits},
    )
    return _drop_copies(images, rules.precision * float(box_of(view).width.max()))


def _drop_copies(found: Reconstruction, precision: float) -> Reconstruction:
    """Return a reconstruction without unproven inputs that are certified ones again, found in another way."""
    flat = found.inputs.flatten(1)
    proven = flat[found.certified]
    is_copy = torch.tensor([bool(((proven - one).abs().amax(dim=1) <= precision).any()) for one in flat])
    keep = found.certified | ~is_copy
    if bool(keep.all()):
        return found
    lists = {
        name: [value for value, kept in zip(found.diagnostics[name], keep.tolist(), strict=True) if kept]
        for name in PER_INPUT
        if name in found.diagnostics
    }
    return replace(
        found,
        inputs=found.inputs[keep],
        certified=found.certified[keep],
        confidence=found.confidence[keep],
        p_values=None if found.p_values is None else found.p_values[keep],
        diagnostics={**found.diagnostics, **lists},
    )


def _log_p_isolated(
    trunk: Trunk, inverse: Inversion, is_known: Bool[Tensor, " example"], proof: SpanProof, precision: float
) -> Float[Tensor, " example"]:
    """Bound the log probability that isolated inputs were not trained on; 0 for others, and for what is known."""
    order = torch.cat([is_known.nonzero()[:, 0], (inverse.is_isolated & ~is_known).nonzero()[:, 0]])
    log_p = torch.zeros(len(is_known), dtype=torch.float64)
    kept: list[int] = []
    for place in order.tolist():
        others = inverse.inputs[kept].flatten(1)
        distances = (others - inverse.inputs[place].flatten()).abs().amax(dim=1)
        if not bool((distances < precision).any()):  # two ways to the same input prove it once
            kept.append(place)
    if not kept:
        return log_p
    with torch.no_grad():
        bounds = proof.log_p(trunk(inverse.inputs[kept]))
    log_p[kept] = (bounds.cpu() + math.log(len(is_known))).clamp(max=0.0)
    return torch.where(is_known, 0.0, log_p)


def _with_proofs(
    found: Reconstruction, is_proven: Bool[Tensor, " example"], log_p: Float[Tensor, " example"]
) -> Reconstruction:
    """Return a reconstruction with the p-values and the confidence of inputs that the span proves."""
    p_values = torch.ones(len(found)).double() if found.p_values is None else found.p_values
    return replace(
        found,
        confidence=torch.where(is_proven, 1.0, found.confidence),
        p_values=torch.where(is_proven, log_p.exp().to(p_values), p_values),
    )


def _add_doubt(doubts: list[str], is_sure: Tensor, doubt: str) -> list[str]:
    """Return doubts with one more where something is not sure; those that were there already stay."""
    return [old or ("" if sure else doubt) for old, sure in zip(doubts, is_sure.tolist(), strict=True)]


def box_of(view: AttackerView) -> InputBox:
    """Return the range of network inputs in their shape; infinite where it is unknown."""
    box = view.model_box()
    if box is None:
        ends = torch.full(view.input_shape, torch.inf, device=view.device)
        return InputBox(-ends, ends)
    return InputBox(*(end.float().reshape(view.input_shape) for end in box))
