"""The layers whose inputs the gates of a ReLU give away, wherever in the network they are.

For a dense layer above others, a sum of gradients is ``Σ_i [h_i; 1] γ_iᵀ`` with the features ``h_i`` in place of
inputs, as long as the features stood still: in one gradient, in one step, or while the layers below were frozen. In the
state of an optimiser they moved a little, over a whole training of the layers below much.
"""

from dataclasses import replace

from exhume.clues.evidence import Evidence
from exhume.clues.first_layer import FLAT_SIDED, UNREADABLE, FirstLayer, read_layer
from exhume.core.errors import Refusal
from exhume.models.structure import Step, trained_steps
from exhume.records import AttackerView


def read_gate_layers(view: AttackerView, evidence: Evidence) -> list[FirstLayer]:
    """Return the dense layers with a flat-sided activation whose inputs stood still or nearly so, the lowest first.

    Raises:
        Refusal: when there is none; the message says what is missing.
    """
    changed = evidence.trained()
    steps = trained_steps(view.model, changed)
    names = [step.name for step, _ in steps]
    usable = [
        (place, step, following)
        for place, (step, following) in enumerate(steps)
        if _has_gates(step, following) and names.count(step.name) == 1 and _is_measured(step, changed)
    ]
    if not usable:
        raise Refusal(_reason(steps))
    kept = [
        read_layer(view, evidence, step, following, changed)
        if place == 0
        # At other weights the layers below make other features, so gradients taken there are left aside.
        else read_layer(
            view, replace(evidence, others=()), step, following, changed, inputs_stood_still=_is_one_gradient(evidence)
        )
        for place, step, following in usable
        if place == 0 or evidence.is_local
    ]
    if not kept:
        first = usable[0][1].name
        raise Refusal(
            f"Layer {first!r} has the gates that the certificate needs, but the layers below it were trained as well, "
            "so that its inputs moved. A gradient or the optimiser's state of this training would show them."
        )
    return kept


def read_lowest_gate_layer(view: AttackerView, evidence: Evidence) -> FirstLayer:
    """Return the lowest dense layer with a flat-sided activation above one that is not dense, though its inputs moved.

    Raises:
        Refusal: when there is none.
    """
    changed = evidence.trained()
    steps = trained_steps(view.model, changed)
    if steps and steps[0][0].layer is not None:
        raise Refusal(f"The first trained layer, {steps[0][0].name!r}, is dense: attacks on its inputs show more.")
    names = [step.name for step, _ in steps]
    for step, following in steps:
        if _has_gates(step, following) and _is_measured(step, changed) and names.count(step.name) == 1:
            return read_layer(view, evidence, step, following, changed, inputs_stood_still=False)
    raise Refusal(_reason(steps))


def _has_gates(step: Step, following: Step | None) -> bool:
    is_activation = following is not None and following.kind == "activation" and following.name in FLAT_SIDED
    return step.layer is not None and is_activation


def _is_measured(step: Step, changed: set[str]) -> bool:
    return step.layer is not None and step.layer.weight in changed


def _is_one_gradient(evidence: Evidence) -> bool:
    """Whether all parts of the sum were computed at the same weights, and not only nearly so."""
    return evidence.is_local and evidence.kind != "optimiser state"


def _reason(steps: list[tuple[Step, Step | None]]) -> str:
    """Return why no layer has gates that the certificate can use."""
    if not steps:
        return UNREADABLE
    step, following = steps[0]
    if len(steps) == 1 or step.layer is not None:
        follows = following.name if following is not None and following.kind == "activation" else "no activation"
        return (
            f"The certificate needs an activation with an exactly flat side (ReLU) after layer {step.name!r}, "
            f"and {follows} follows it."
        )
    return (
        f"The first trained layer, {step.name!r}, is not a dense layer, and no layer above it is a dense layer with an "
        "activation that has an exactly flat side (ReLU)."
    )
