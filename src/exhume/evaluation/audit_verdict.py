"""One verdict for all attacks on a network: the gravest of theirs."""

from dataclasses import replace

from exhume.evaluation.verdict import Finding, Verdict, verdict_of_evaluation
from exhume.records import Applicability, Audit, Evaluation

_GRAVITY = list(Finding)


def lead(audit: Audit) -> str | None:
    """Return the name of the attack with the gravest verdict, of equals with the most to show; None without any."""
    return min(audit.evaluations, key=lambda name: _gravity(audit.evaluations[name]), default=None)


def verdict(found: Evaluation | Audit) -> Verdict:
    """Say in plain words what one attack found, or all attacks together, each count with its null."""
    return verdict_of_evaluation(found) if isinstance(found, Evaluation) else verdict_of_audit(found)


def verdict_of_audit(audit: Audit) -> Verdict:
    """Say in plain words what all attacks together found."""
    first = lead(audit)
    if first is None:
        return _untested(audit)
    spoken = verdict_of_evaluation(audit.evaluations[first])
    others = len(audit.evaluations) - 1
    if others == 0:
        return spoken
    if spoken.finding is Finding.NOTHING:
        return replace(spoken, sentence=spoken.sentence.replace("by this attack", "by any of the attacks that ran"))
    words = "One other attack" if others == 1 else f"{others} other attacks"
    return replace(spoken, detail=f"{spoken.detail} {words} ran and found no more than this.")


def gravity(finding: Finding) -> int:
    """Return how grave a finding is, the larger the graver."""
    return len(_GRAVITY) - _GRAVITY.index(finding)


def _gravity(evaluation: Evaluation) -> tuple[int, int, int]:
    shown = evaluation.certified if evaluation.train is None else evaluation.train.good
    return _GRAVITY.index(verdict_of_evaluation(evaluation).finding), -evaluation.certified, -shown


def _untested(audit: Audit) -> Verdict:
    refused = sum(one.applies is Applicability.DOES_NOT for one in audit.assessments)
    if refused == len(audit.assessments):
        sentence = "Nothing was tested: no attack here applies to this network as it was given."
    else:
        sentence = "Nothing was tested: no attack came to an end within the budget."
    return Verdict(
        finding=Finding.UNTESTED,
        sentence=sentence,
        detail="That is no proof of safety. The list of attacks says what each would need.",
    )
