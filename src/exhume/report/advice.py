"""What to do about a finding, the surest remedy first."""

from dataclasses import dataclass

from exhume.evaluation.verdict import Finding
from exhume.records import Audit


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One thing to do, and what it takes."""

    what: str
    why: str


def advice(audit: Audit, finding: Finding) -> list[Advice]:
    """Return what to do next, for a dossier with this finding."""
    if finding is Finding.UNTESTED:
        return [_SUPPLY]
    knew_start = any(evaluation.given.get("initial weights") for evaluation in audit.evaluations.values())
    if finding in (Finding.NOTHING, Finding.UNPROVEN):
        return [_NO_SEAL, *([] if knew_start else [_TRY_STARTS]), _HOLD_OUT]
    searched = audit.start is not None and audit.start.tried > 1
    first = [_FOUND_START if searched else _HIDE_START] if knew_start else []
    is_measured = any(price.certified is not None for price in audit.prices)
    coarser = _COARSER_MEASURED if is_measured else _COARSER
    complete = [_COMPLETE] if any(evaluation.false_certificates for evaluation in audit.evaluations.values()) else []
    return [_DO_NOT_RELEASE, *complete, *first, _MORE_EXAMPLES, _PRIVATE, coarser, _AGAIN]


_DO_NOT_RELEASE = Advice(
    what="Do not release these weights.",
    why="Whoever has them and what the attacker was given has the examples on this page. Copies already given away "
    "cannot be called back; treat those examples as published with them.",
)
_COMPLETE = Advice(
    what="Give the audit all the data the network was trained on, in the units it takes.",
    why="Some certificates match none of the data given. A certificate is a proof that needs no data, so either the "
    "data is incomplete or the proof is wrong; until you know which, take it for true.",
)
_HIDE_START = Advice(
    what="Do not count on the start staying secret.",
    why="The attacker held the initial weights. A start drawn from a seed is found by trying seeds "
    "(--initial seed:0-9999), and a public checkpoint by comparing; weights drawn from a cryptographic source and "
    "then deleted take this attack away, though not others.",
)
_FOUND_START = Advice(
    what="The start was found by search; a secret seed is no protection.",
    why="Draw initial weights from a cryptographic source and delete them, or expect every attacker to have them.",
)
_MORE_EXAMPLES = Advice(
    what="Train the first layer on many more examples than it has units or inputs.",
    why="Then its change no longer counts them, and exact recovery has nothing to start from.",
)
_PRIVATE = Advice(
    what="Train with differential privacy where the examples matter.",
    why="It is the one remedy with a guarantee against attacks nobody has thought of; it costs accuracy, "
    "the more the smaller epsilon is.",
)
_COARSER = Advice(
    what="Rounding to eight bits or noise on the weights stops the proofs, not every attack.",
    why="Measure both sides on this network with --defences before relying on it.",
)
_COARSER_MEASURED = Advice(what=_COARSER.what, why="The table below has both sides, measured on this network.")
_AGAIN = Advice(
    what="Audit the new weights with the same command.",
    why="That an attack no longer works is a lower bound on the protection, not a guarantee.",
)
_NO_SEAL = Advice(
    what="Read this for what it says: these attacks found nothing with what they were given.",
    why="A stronger attack, a better start or more knowledge may find more. The table of attacks above says which did "
    "not apply or did not finish.",
)
_TRY_STARTS = Advice(
    what="Let the attacker look for the start.",
    why="--initial seed:0-9999 tries seeds, and several --initial files try public checkpoints; with the start, far "
    "stronger attacks apply.",
)
_HOLD_OUT = Advice(
    what="Hold out as many examples as you trained on.",
    why="The null they give is what tells a weak recovery from a lucky one.",
)
_SUPPLY = Advice(
    what="Give the audit what an attacker would have.",
    why="The table of attacks above says what each would need: most of all the weights before training, which a search "
    "over seeds or public checkpoints may find.",
)
