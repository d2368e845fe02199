"""The verdict on an audit: the gravest verdict on one of its attacks."""

from collections.abc import Sequence
from dataclasses import replace

from exhume.evaluation.verdict import (
    NOTHING,
    NOTHING_BEYOND_CHANCE,
    NOTHING_CERTAIN,
    Finding,
    Verdict,
    verdict_of_evaluation,
)
from exhume.records import Applicability, Audit, Evaluation, TokenCounts
from exhume.records.audit import FAILED

_GRAVITY = list(Finding)
_CAUTION = (NOTHING, NOTHING_BEYOND_CHANCE, NOTHING_CERTAIN)
"""The sentences of a verdict of nothing, the most cautious last."""


def lead(audit: Audit) -> str | None:
    """Return the attack with the gravest verdict, of equals the one that found most; None where no attack finished."""
    return min(audit.evaluations, key=lambda name: _rank(audit.evaluations[name]), default=None)


def verdict(found: Evaluation | Audit) -> Verdict:
    """State what one attack found, or all attacks of an audit, with the count on held-out data beside each count."""
    return verdict_of_evaluation(found) if isinstance(found, Evaluation) else verdict_of_audit(found)


def verdict_of_audit(audit: Audit) -> Verdict:
    """State what the attacks of an audit found."""
    first = lead(audit)
    if first is None:
        return _untested(audit) if audit.tokens is None else _verdict_of_tokens(audit.tokens)
    worst = verdict_of_evaluation(audit.evaluations[first])
    others = len(audit.evaluations) - 1
    if others == 0:
        return worst
    if worst.finding is Finding.NOTHING:
        return _nothing_by_any(audit)
    words = "One other attack" if others == 1 else f"{others} other attacks"
    return replace(worst, detail=f"{worst.detail} {words} ran{_describe_more(audit, first)}")


def _describe_more(audit: Audit, first: str) -> str:
    """Return what another attack recovered beyond the first, which has the gravest verdict."""

    def exact(name: str) -> int:
        train = audit.evaluations[name].train
        return 0 if train is None else train.exact

    most = max(audit.evaluations, key=exact)
    if exact(most) <= exact(first):
        return " and found no more than this."
    return f"; {most} recovered {exact(most)} exactly, {audit.evaluations[most].certified} of them with a certificate."


def _nothing_by_any(audit: Audit) -> Verdict:
    """State that no attack found anything, with the counts of each; the sentence claims no more than all of them."""
    verdicts = {name: verdict_of_evaluation(evaluation) for name, evaluation in audit.evaluations.items()}
    sentence = max((one.sentence for one in verdicts.values()), key=_CAUTION.index)
    return Verdict(
        finding=Finding.NOTHING,
        sentence=sentence.replace("by this attack", "by any of the attacks that ran"),
        detail=" ".join(f"{name}: {one.detail}" for name, one in verdicts.items()),
    )


def gravity(finding: Finding) -> int:
    """Return how grave a finding is; larger is graver."""
    return len(_GRAVITY) - _GRAVITY.index(finding)


def _rank(evaluation: Evaluation) -> tuple[int, int, int]:
    shown = evaluation.certified if evaluation.train is None else evaluation.train.good
    return _GRAVITY.index(verdict_of_evaluation(evaluation).finding), -evaluation.certified, -shown


def _verdict_of_tokens(tokens: Sequence[TokenCounts]) -> Verdict:
    """State which tokens of a text model were trained on, by the evidence that tells most of them apart."""
    telling = [one for one in tokens if 0 < one.moved < one.vocabulary]
    if not telling:
        return Verdict(
            finding=Finding.UNTESTED,
            sentence="Nothing was tested: the model takes token ids, which exhume does not reconstruct.",
            detail="That is no proof of safety. The rows of its embedding would show which tokens were trained on, if "
            "only some of them moved between initial and final weights, or in a gradient or an optimiser's state.",
        )
    first = max(telling, key=lambda one: one.moved)
    said = f"Read off the {first.evidence} of layer {first.layer!r}."
    if first.trained is not None:
        said += f" {first.trained[0]} of the {first.trained[1]} distinct tokens of the training text moved"
        said += "." if first.held_out is None else (
            f", and {first.held_out[0]} of the {first.held_out[1]} tokens that only held-out text has."
        )  # fmt: skip
    return Verdict(
        finding=Finding.TRACES,
        sentence=f"The embedding shows which tokens were trained on: {first.moved} of {first.vocabulary} rows moved. "
        "The text was not reconstructed.",
        detail=f"{said} exhume does not reconstruct token inputs, so this is no proof that nothing else leaks.",
    )


def _untested(audit: Audit) -> Verdict:
    refused = sum(one.applies is Applicability.DOES_NOT for one in audit.assessments)
    failed = [one.attack for one in audit.assessments if one.fate.startswith(FAILED)]
    if refused == len(audit.assessments):
        sentence = "Nothing was tested: no attack applies to this network as it was given."
    elif failed:
        sentence = f"Nothing was tested: {' and '.join(failed)} ended by an error in exhume itself; please report it."
    else:
        sentence = "Nothing was tested: no attack finished within the budget."
    return Verdict(
        finding=Finding.UNTESTED,
        sentence=sentence,
        detail="That is no proof of safety. The list of attacks states what each would need.",
    )
