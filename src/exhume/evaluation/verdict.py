"""The audit in a sentence."""

from dataclasses import dataclass
from enum import StrEnum

from exhume.evaluation.calibration import odds
from exhume.records import Audit, Comparison
from exhume.records.comparison import EXACT, GOOD

BEYOND_CHANCE = 0.01
"""Below this probability a count is not put down to chance."""


class Finding(StrEnum):
    """How much an audit found, gravest first."""

    PROVEN = "proven"
    """Recoveries that carry a proof."""
    RECOVERED = "recovered"
    """Recoveries that show training examples, without a proof the attacker could rely on."""
    TRACES = "traces"
    """Training examples stand out from held-out ones, but none is shown."""
    UNPROVEN = "unproven"
    """Candidates that nobody can check, because no data was given."""
    NOTHING = "nothing"
    """Nothing beyond chance."""
    UNTESTED = "untested"
    """No attack applies, or none came to an end, so nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to say first, and what to say next."""

    finding: Finding
    sentence: str
    detail: str


def verdict(audit: Audit) -> Verdict:
    """Say in plain words what an audit found, each count with its null."""
    if audit.train is None:
        return _without_data(audit)
    if audit.certified:
        return _proven(audit, audit.train)
    if audit.train.good and _beats_null(audit.train, audit.holdout):
        return _recovered(audit, audit.train)
    if audit.relative is not None and audit.relative.levels[0].chance < BEYOND_CHANCE:
        return _traces(audit, audit.train)
    return Verdict(finding=Finding.NOTHING, sentence=_NOTHING, detail=_put_down_to_chance(audit))


def plural(audit: Audit) -> str:
    """Name what was recovered: images, or the records of a table."""
    return "images" if audit.found.inputs.ndim > 2 else "records"


def value_unit(audit: Audit) -> str:
    """Name what errors of values are measured in."""
    return "its range" if audit.bounds is not None else "its column's deviation"


_NOTHING = "No training input was recovered by this attack; that is no proof of safety."


def _without_data(audit: Audit) -> Verdict:
    candidates = len(audit.found)
    estimate = audit.training_size_estimate
    size = "" if estimate is None else f" The weights tell of {_training(estimate, audit)}."
    if audit.certified:
        return Verdict(
            finding=Finding.PROVEN,
            sentence=f"{_training(audit.certified, audit)} {_were(audit.certified)} recovered, each with a proof.",
            detail=f"No data was given to check them against, and the proofs need none.{size}",
        )
    return Verdict(
        finding=Finding.UNPROVEN if candidates else Finding.NOTHING,
        sentence=f"No proof for any of the candidates, {candidates} in number: plausible perhaps, but unproven."
        if candidates
        else _NOTHING,
        detail=f"No data was given to check the attack against.{size}",
    )


def _proven(audit: Audit, train: Comparison) -> Verdict:
    things, false = plural(audit), audit.false_certificates
    proven, exact = audit.certified_examples or 0, audit.certified_exact or 0
    if proven == 0:
        sentence = f"No training {things[:-1]} was recovered, and every certificate is false."
    else:
        exactly = " exactly" if exact == proven else ""
        some = "" if exact in (0, proven) else f"; {exact} of them exactly"
        sentence = (
            f"{proven} of {len(train)} training {things} {_were(proven)} recovered{exactly}, each with a proof{some}."
        )
    null = (
        f"Held-out {things} matched as exactly: {audit.holdout.exact}."
        if audit.holdout
        else "Nothing was held out to measure against."
    )
    return Verdict(
        finding=Finding.PROVEN if proven else Finding.NOTHING,
        sentence=sentence,
        detail=f"Certificates: {audit.certified}, {false or 'none'} of them false.{_other_data(audit, train)} "
        f"Exact means that no value is off by {EXACT:g} of {value_unit(audit)}. {null}",
    )


def _other_data(audit: Audit, train: Comparison) -> str:
    """Say when false certificates may be true ones of examples that the audit was not given to compare with."""
    if not audit.false_certificates:
        return ""
    estimate = audit.training_size_estimate
    if estimate is not None and estimate > len(train):
        return (
            f" The weights tell of {_training(estimate, audit)} and {len(train)} {_were(len(train))} given, so that a "
            "certificate may be called false because its example was not given."
        )
    if not audit.certified_examples:
        return " Or the network was trained on other data than was given, or on the same in other units."
    return ""


def _recovered(audit: Audit, train: Comparison) -> Verdict:
    things, null = plural(audit), audit.holdout
    against = (
        "nothing was held out" if not null else f"{null.good} of {len(null)} held-out {things} are matched as closely"
    )
    return Verdict(
        finding=Finding.RECOVERED,
        sentence=f"{train.good} of {len(train)} training {things} {_were(train.good)} recovered, without a proof.",
        detail=f"Their mean squared error a value is below {GOOD:g}; {against}.",
    )


def _traces(audit: Audit, train: Comparison) -> Verdict:
    assert audit.relative is not None
    level, things = audit.relative.levels[0], plural(audit)
    stand = "stands" if level.recovered == 1 else "stand"
    return Verdict(
        finding=Finding.TRACES,
        sentence=f"{level.recovered} of {len(train)} training {things} {stand} out from held-out ones, "
        "though none was recovered.",
        detail=f"Measured by the nearest other {things[:-1]}, they are nearer to a candidate than all but "
        f"{level.fpr:.0%} of held-out {things} (false-positive rate at most {max(level.fpr, level.bound):.1%}); "
        f"with the two sets exchanged: {level.holdout_recovered}.",
    )


def _put_down_to_chance(audit: Audit) -> str:
    if audit.relative is None:
        return "Nothing was held out to measure against."
    level, things = audit.relative.levels[0], plural(audit)
    return (
        f"Training {things} nearer to a candidate than all but {level.fpr:.0%} of held-out ones: {level.recovered}; "
        f"chance alone gives as many or more with probability {level.chance:.2g}."
    )


def _beats_null(train: Comparison, null: Comparison | None) -> bool:
    """Tell whether good recoveries are more than the null explains; an empty null explains none."""
    if null is None or null.good == 0:
        return True
    return odds(train.good, train.good + null.good, len(train), len(null)) < BEYOND_CHANCE


def _training(count: int, audit: Audit) -> str:
    return f"{count} training {plural(audit) if count != 1 else plural(audit)[:-1]}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
