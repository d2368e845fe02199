"""Recommend what to do about a finding, the most effective remedy first."""

from dataclasses import dataclass

from exhume.core.text import count_noun
from exhume.evaluation.verdict import Finding
from exhume.records import Applicability, Audit
from exhume.records.audit import STATE_DROPPED


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One recommendation and its reason."""

    what: str
    why: str


def recommend(audit: Audit, finding: Finding) -> list[Advice]:
    """Return recommendations for an audit with this finding."""
    if finding is Finding.UNTESTED:
        return _supply(audit)
    if audit.tokens and not audit.evaluations:
        return [_TOKENS, _PRIVATE, _AGAIN]
    knew_start = any(evaluation.given.get("initial weights") for evaluation in audit.evaluations.values())
    if finding in (Finding.NOTHING, Finding.UNPROVEN):
        return [_NO_SEAL, *([] if knew_start else [_TRY_STARTS]), _HOLD_OUT]
    searched = audit.start is not None and audit.start.tried > 1
    first = [_FOUND_START if searched else _HIDE_START] if knew_start else []
    if any(evaluation.given.get("optimiser state") for evaluation in audit.evaluations.values()):
        first = [_drop_state(audit), *first]
    if any(evaluation.given.get("gradient") for evaluation in audit.evaluations.values()):
        first = [_HIDE_GRADIENT, *first]
    is_measured = any(price.certified is not None for price in audit.prices)
    coarser = _COARSER_MEASURED if is_measured else _COARSER
    complete = [_COMPLETE] if any(evaluation.false_certificates for evaluation in audit.evaluations.values()) else []
    return [_DO_NOT_RELEASE, *complete, *first, _MORE_EXAMPLES, _PRIVATE, coarser, _AGAIN]


_DO_NOT_RELEASE = Advice(
    what="Do not release these weights.",
    why="Anyone with these weights, and with what the attacker was given, can recover the examples on this page. "
    "Copies already distributed cannot be recalled; treat those examples as published.",
)
_COMPLETE = Advice(
    what="Give the audit all the training data, as the network receives it.",
    why="Some certificates match none of the given data. A certificate is a proof that needs no data, so either the "
    "data is incomplete or the proof is wrong; until you know which, assume that the proof is right.",
)
_HIDE_GRADIENT = Advice(
    what="Do not hand out gradients of small batches.",
    why="One gradient gives its batch away. In federated learning, add noise before an update leaves the client. "
    "Clipping and rounding protect nothing, nor does secure aggregation as long as the sum has fewer examples than the "
    "first layer has inputs and units.",
)
_HIDE_START = Advice(
    what="Do not rely on secret initial weights.",
    why="The attacker knew the initial weights. Weights drawn from a seed are found by trying seeds "
    "(--initial seed:0-9999), and a public checkpoint is found by comparison. Initial weights from a cryptographic "
    "source that are then deleted prevent this attack, but not others.",
)
_FOUND_START = Advice(
    what="The initial weights were found by search; a secret seed does not protect them.",
    why="Draw initial weights from a cryptographic source and delete them, or assume that every attacker has them.",
)
_MORE_EXAMPLES = Advice(
    what="Train the first layer on many more examples than it has units or inputs.",
    why="Then the rank of its weight change no longer reveals their number, on which exact recovery depends.",
)
_PRIVATE = Advice(
    what="Train with differential privacy if the examples are sensitive.",
    why="Only this remedy comes with a guarantee against unknown attacks. It costs accuracy, "
    "more for a smaller epsilon.",
)
_COARSER = Advice(
    what="Rounding the weights to eight bits or adding noise prevents proofs, but not every attack.",
    why="Measure cost and effect on this network with --defences before you rely on it.",
)
_COARSER_MEASURED = Advice(what=_COARSER.what, why="The table below shows cost and effect, measured on this network.")
_TOKENS = Advice(
    what="Assume that the vocabulary of the training text is known.",
    why="Names and rare words that were trained on have rows that moved. Train all rows, add noise to all of them, or "
    "withhold the initial weights and the optimiser's state; then audit again.",
)
_AGAIN = Advice(
    what="Audit the new weights with the same command.",
    why="That an attack no longer works shows some protection, but guarantees none.",
)
_NO_SEAL = Advice(
    what="Do not read this as proof of safety: these attacks found nothing with what they were given.",
    why="A stronger attack or more knowledge may find more. The table of attacks above shows which attacks did not "
    "apply or did not finish.",
)
_TRY_STARTS = Advice(
    what="Let the attacker search for the initial weights.",
    why="--initial seed:0-9999 tries seeds, and several --initial files try public checkpoints. With the initial "
    "weights, much stronger attacks apply.",
)
_HOLD_OUT = Advice(
    what="Hold out as many examples as you trained on.",
    why="The comparison with held-out examples separates weak recoveries from chance.",
)
_FACTS = Advice(
    what="Give the audit what an attacker would have.",
    why="The table of attacks above shows what each attack lacks. Facts about the training, such as its loss or its "
    "size, are given with --trained-with and --training-size, settings of an attack with --set.",
)
_MORE_TIME = Advice(
    what="Give the attacks more time.",
    why="The table of attacks above shows which of them were stopped; the same command with a larger --budget "
    "continues where they were.",
)


def _drop_state(audit: Audit) -> Advice:
    """Return the advice to publish weights alone, with what that saves where it was measured."""
    price = next((one for one in audit.prices if one.change == STATE_DROPPED and one.certified is not None), None)
    proven = max((evaluation.certified for evaluation in audit.evaluations.values()), default=0)
    effect = (
        "Audit the weights alone (--final instead of --checkpoint) to see what they still tell, or add --defences."
        if price is None
        else f"Measured on this network: the attacker proves {count_noun(proven, 'example')} with the state and "
        f"{price.certified} without it. Other attacks may still work on the weights alone."
    )
    return Advice(
        what="Publish the weights without the optimiser's state.",
        why="The attacker read the last gradients off the optimiser's memory (Adam's first moment, SGD's momentum). "
        f"Nobody needs it to use the model. {effect}",
    )


def _supply(audit: Audit) -> list[Advice]:
    """Return what would let an attack run, apart from what was given already."""
    stopped = any(one.fate and one.applies is not Applicability.DOES_NOT for one in audit.assessments)
    starts = [] if audit.given.get("initial weights") else [_TRY_STARTS]
    return [*([_MORE_TIME] if stopped else []), *starts, _FACTS]
