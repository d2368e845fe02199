"""Remarks about a network that an attack's reader should know, each a sentence or None."""

from exhume.clues.clues import Clues

RESCALING_OPTIMISERS = ("adam", "adamw", "adamax", "nadam", "radam", "rmsprop", "adagrad", "lion", "shampoo")
MARGIN_LOSSES = ("bce", "ce", "cross-entropy", "logistic", "exponential")
UNITS_AN_EXAMPLE = 5.0
"""Below so many units an example the certificate's search was seen to stall (docs/results)."""
NEARLY_FULL = 0.6
"""Of the rank a layer can have: a training set this large leaves hardly anything to tell its inputs apart by."""
FAR = 0.5
"""Of the start's norm: a change this large bends the features that attacks near the start rely on."""


def no_visible_rank(clues: Clues) -> str | None:
    """Say why the training inputs leave no low rank behind."""
    return clues.no_subspace_because


def crowded(clues: Clues) -> str | None:
    """Say that there are few units for so many examples."""
    if clues.subspace is None:
        return None
    units = clues.subspace.rows.shape[1] / clues.subspace.rank
    return (
        f"There are {units:.1f} units an example; below {UNITS_AN_EXAMPLE:g} the search may not finish."
        if units < UNITS_AN_EXAMPLE
        else None
    )


def nearly_full(clues: Clues) -> str | None:
    """Say that the rank is suspiciously high."""
    if clues.subspace is None:
        return None
    rank, most = clues.subspace.rank, min(clues.subspace.layer.change.shape)
    if rank < NEARLY_FULL * most:
        return None
    return (
        f"The first trained layer changed by a rank of {rank}, nearly the {most} it can have: there were more training "
        "inputs than can be told apart, or the optimiser rescales entries, as Adam does."
    )


def unclear_count(clues: Clues) -> str | None:
    """Say that the number of examples is an estimate."""
    if clues.subspace is None or clues.subspace.is_clear:
        return None
    return "The singular values show no clear gap, so the number of training inputs is an estimate."


def only_features(clues: Clues) -> str | None:
    """Say that what is read is not the network's input."""
    if clues.subspace is None or clues.subspace.layer.reads_input:
        return None
    name = clues.subspace.layer.name
    return f"The first trained layer, {name!r}, reads frozen features: those are recovered, not inputs."


def moved_features(clues: Clues) -> str | None:
    """Say that the weights moved far."""
    if clues.movement is None or clues.movement < FAR or clues.view.linearised:
        return None
    return (
        f"The weights moved by {clues.movement:.0%} of their size; the attack assumes features that stand still, "
        "and returns blurred or mixed inputs the further they moved."
    )


def not_a_margin_loss(clues: Clues) -> str | None:
    """Say that the training did not maximise a margin."""
    loss = clues.known("loss")
    if not loss or loss in MARGIN_LOSSES:
        return None
    return f"The network was trained with {loss}, which maximises no margin."


def no_weight_decay(clues: Clues) -> str | None:
    """Say that nothing drew the weights to a stationary point, or that nobody said so."""
    decay = clues.known("weight_decay")
    if decay == "":
        return "It rests on weight decay and a training that came to rest; whether there was either is not known."
    try:
        return (
            None if float(decay) > 0 else "Trained without weight decay, so that its weights are no stationary point."
        )
    except ValueError:
        return None


def start_decides(clues: Clues) -> str | None:
    """Say that what is returned owes much to where the search began."""
    return "What it returns explains the weights, and so may other inputs: it stays near its start and proves nothing."


def rescaling_optimiser(clues: Clues) -> str | None:
    """Say that the optimiser hides the low rank of gradients."""
    optimiser = clues.known("optimiser")
    if optimiser not in RESCALING_OPTIMISERS:
        return None
    return f"Trained with {optimiser}, which rescales every weight's steps: sums of gradients explain the change badly."


def noisy_training(clues: Clues) -> str | None:
    """Say that training added noise on purpose."""
    private = clues.known("noise_multiplier") or clues.known("epsilon")
    return "Trained with differential privacy, which bounds what any attack can learn." if private else None


def augmented(clues: Clues) -> str | None:
    """Say that examples were altered while training."""
    if clues.known("augmentation") in ("", "none", "false", "no", "0"):
        return None
    return "Trained on altered copies (augmentation): what is recovered are the copies, and there are more of them."


def batch_norm(clues: Clues) -> str | None:
    """Say that batches mix examples."""
    return (
        "Batch normalisation mixes the examples of a batch, which no attack here models."
        if clues.has_batch_norm
        else None
    )


def dropout(clues: Clues) -> str | None:
    """Say that training saw other networks."""
    return "Dropout trained another part of the network in every step." if clues.has_dropout else None


def coarse(clues: Clues) -> str | None:
    """Say that the weights were rounded."""
    kind = clues.coarse_weights
    return f"The weights were released as {kind}; rounding hides the weakest examples." if kind else None


COMMON = (rescaling_optimiser, noisy_training, augmented, batch_norm, dropout, coarse)
"""What concerns every attack."""
