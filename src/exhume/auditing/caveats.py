"""Caveats of attacks: each function returns a sentence about a network, or None where it does not hold."""

from exhume.clues.clues import Clues
from exhume.core.errors import Refusal

RESCALING_OPTIMISERS = ("adam", "adamw", "adamax", "nadam", "radam", "rmsprop", "adagrad", "lion", "shampoo")
"""Optimisers whose steps are not sums of gradients of single examples."""
MARGIN_LOSSES = ("bce", "ce", "cross-entropy", "logistic", "exponential")
"""Losses whose gradient flow converges to a maximum-margin solution."""
UNITS_PER_EXAMPLE = 5.0
"""Units per training example below which the search of the certificate was measured to stall (docs/results)."""
NEARLY_FULL = 0.6
"""Share of the largest possible rank of a layer; above it, too few directions remain to separate the inputs."""
FAR = 0.5
"""Change of the weights relative to the norm of the initial weights, above which features have changed noticeably."""


def no_visible_rank(clues: Clues) -> str | None:
    """The layer that the certificate reads shows no low rank."""
    try:
        clues.require_gate_subspace()
    except Refusal as reason:
        return str(reason)
    return None


def no_visible_span(clues: Clues) -> str | None:
    """The first layer shows no low rank."""
    try:
        clues.require_subspace()
    except Refusal as reason:
        return str(reason)
    return None


def crowded(clues: Clues) -> str | None:
    """There are few units per training example."""
    subspace = clues.gate_subspace
    if subspace is None:
        return None
    units = subspace.rows.shape[1] / subspace.rank
    return (
        f"There are {units:.1f} units per example; below {UNITS_PER_EXAMPLE:g} the search may not finish."
        if units < UNITS_PER_EXAMPLE
        else None
    )


def nearly_full(clues: Clues) -> str | None:
    """The rank is nearly the largest possible."""
    subspace = clues.gate_subspace
    if subspace is None:
        return None
    rank, most = subspace.rank, min(subspace.layer.change.shape)
    if rank < NEARLY_FULL * most:
        return None
    return (
        f"The {subspace.layer.evidence.kind} of layer {subspace.layer.name!r} has rank {rank}, nearly the largest "
        f"possible, {most}: "
        "there are more training inputs than can be separated, or the optimiser rescales the steps of each weight, as "
        "Adam does."
    )


def unclear_count(clues: Clues) -> str | None:
    """The rank of the weight change is not the number of training examples."""
    subspace = clues.gate_subspace
    if subspace is None or subspace.is_clear:
        return None
    rank, doubt, estimate = subspace.rank, subspace.doubt, subspace.size_estimate
    known = "only a lower bound of" if estimate is not None else "not necessarily"
    evidence = subspace.layer.evidence.kind
    return f"The rank of the {evidence}, {rank}, is {known} the number of training inputs: {doubt}."


def only_features(clues: Clues) -> str | None:
    """The first trained layer does not read the network's input."""
    try:
        layer = clues.require_gate_layers()[0]
    except Refusal:
        return None
    if layer.reads_input:
        return None
    moved = "" if layer.inputs_stood_still else " They moved while the gradients were summed, so they are averages."
    return f"Layer {layer.name!r} reads features: features are recovered, and inputs where these determine them.{moved}"


def moved_features(clues: Clues) -> str | None:
    """The weights moved far from their initial values."""
    if clues.movement is None or clues.movement < FAR or clues.view.linearised:
        return None
    return (
        f"The weights moved by {clues.movement:.0%} of their norm. The attack assumes fixed features; the "
        "further they moved, the more blurred or mixed are the inputs that it returns."
    )


def not_a_margin_loss(clues: Clues) -> str | None:
    """The training did not maximise a margin."""
    loss = clues.known("loss")
    if not loss or loss in MARGIN_LOSSES:
        return None
    return f"The network was trained with {loss}, which does not maximise a margin."


def no_weight_decay(clues: Clues) -> str | None:
    """Weight decay, which makes the final weights a stationary point, is absent or not stated."""
    decay = clues.known("weight_decay")
    if decay == "":
        return "It assumes weight decay and a converged training; whether this holds is not known."
    try:
        return None if float(decay) > 0 else "Trained without weight decay, so its weights are not a stationary point."
    except ValueError:
        return None


def start_decides(clues: Clues) -> str | None:
    """The result depends on the starting point of the search."""
    return "Other inputs may explain the weights as well: the result stays near the starting point and proves nothing."


def unknown_batches(clues: Clues) -> str | None:
    """The training took mini-batches, whose order is not public."""
    size = clues.view.training.batch_size
    return f"Trained in mini-batches of {size}; the attack trains on all candidates at once." if size else None


def rescaling_optimiser(clues: Clues) -> str | None:
    """The optimiser hides the low rank of gradients."""
    optimiser = clues.known("optimiser")
    if optimiser not in RESCALING_OPTIMISERS or clues.evidence_kind in ("gradient", "optimiser state"):
        return None
    return f"Trained with {optimiser}, which rescales steps per weight: sums of gradients explain the change poorly."


def noisy_training(clues: Clues) -> str | None:
    """The training was differentially private."""
    private = clues.known("noise_multiplier") or clues.known("epsilon")
    return "Trained with differential privacy, which bounds what any attack can learn." if private else None


def augmented(clues: Clues) -> str | None:
    """Training examples were augmented."""
    if clues.known("augmentation") in ("", "none", "false", "no", "0"):
        return None
    return "Trained with augmentation: altered copies of the examples are recovered, and there are more of them."


def batch_norm(clues: Clues) -> str | None:
    """Batch normalisation mixes the examples of a batch."""
    return (
        "Batch normalisation mixes the examples of a batch, which this attack does not model."
        if clues.has_batch_norm
        else None
    )


def dropout(clues: Clues) -> str | None:
    """Dropout changed the network in every step."""
    return "Dropout trained another random part of the network in every step." if clues.has_dropout else None


def coarse(clues: Clues) -> str | None:
    """The weights were rounded."""
    kind = clues.coarse_weights
    return f"The weights were released as {kind}; rounding hides the weakest traces of examples." if kind else None


COMMON = (rescaling_optimiser, noisy_training, augmented, batch_norm, dropout, coarse)
"""Caveats of every attack."""
