"""The audit in a sentence."""

from dataclasses import dataclass
from enum import StrEnum

from exhume.records import Audit
from exhume.records.comparison import EXACT, GOOD, SIMILAR

BEYOND_CHANCE = 0.01
"""Below this probability a number of recovered examples is not put down to chance."""


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
    size, things = len(audit.train), plural(audit)
    null = audit.holdout
    proven, exact = audit.certified_examples or 0, audit.certified_exact or 0
    if proven or audit.false_certificates:
        return Verdict(
            finding=Finding.PROVEN, sentence=_proofs(proven, exact, size, things), detail=_certificates(audit)
        )
    good, null_good = audit.train.good, null.good if null else 0
    if good > null_good:
        return Verdict(
            finding=Finding.RECOVERED,
            sentence=f"{good} of {size} training {things} {_were(good)} recovered, without a proof.",
            detail=f"Their mean squared error a value is below {GOOD:g}; "
            + (f"so is that of {null_good} of {len(null)} held-out {things}." if null else "nothing was held out."),
        )
    similar, null_similar = audit.train.similar or 0, (null.similar or 0) if null else 0
    level = audit.calibration.levels[0] if audit.calibration else None
    if level is not None and level.chance < BEYOND_CHANCE:
        rate = max(level.fpr, level.bound)
        return Verdict(
            finding=Finding.TRACES,
            sentence=f"{level.recovered} of {size} training {things} {_stand(level.recovered)} out from held-out ones, "
            "though none was recovered.",
            detail=f"Each is nearer to a candidate than all but {level.fpr:.0%} of held-out {things} "
            f"(false-positive rate at most {rate:.1%}; the other way round: {level.holdout_recovered}). "
            f"{similar} have a structural similarity above {SIMILAR:g} (held out: {null_similar}).",
        )
    return Verdict(
        finding=Finding.NOTHING,
        sentence="No training input was recovered by this attack; that is no proof of safety.",
        detail=_chance(audit, things),
    )


def plural(audit: Audit) -> str:
    """Name what was recovered: images, or the records of a table."""
    return "images" if audit.found.inputs.ndim > 2 else "records"


def _without_data(audit: Audit) -> Verdict:
    things, candidates = plural(audit), len(audit.found)
    estimate = audit.training_size_estimate
    size = "" if estimate is None else f" The weights tell of {estimate} training {things}."
    if audit.certified:
        return Verdict(
            finding=Finding.PROVEN,
            sentence=f"{audit.certified} training {things} {_were(audit.certified)} recovered, each with a proof.",
            detail=f"No data was given to check them against, and none is needed for the proof.{size}",
        )
    return Verdict(
        finding=Finding.UNPROVEN if candidates else Finding.NOTHING,
        sentence=f"{candidates} candidates, none with a proof: plausible perhaps, and unproven."
        if candidates
        else "No training input was recovered by this attack; that is no proof of safety.",
        detail=f"No data was given to check the attack against.{size}",
    )


def _proofs(proven: int, exact: int, size: int, things: str) -> str:
    if proven == 0:
        return f"No training {things[:-1]} was recovered, and every certificate is false."
    exactly = " exactly" if exact == proven else ""
    sentence = f"{proven} of {size} training {things} {_were(proven)} recovered{exactly}, each with a proof"
    return sentence + ("." if exact in (0, proven) else f"; {exact} of them exactly.")


def _certificates(audit: Audit) -> str:
    assert audit.train is not None
    false = audit.false_certificates or 0
    checked = (
        f"{audit.certified} certificates, {false} false." if false else f"{audit.certified} certificates, none false."
    )
    exact = f"Exact: no value is off by {EXACT:g} of its range or more."
    null = f" Held-out {plural(audit)} matched exactly: {audit.holdout.exact}." if audit.holdout else ""
    return f"{checked} {exact}{null}"


def _chance(audit: Audit, things: str) -> str:
    if audit.calibration is None:
        return "Nothing was held out to measure against."
    level = audit.calibration.levels[0]
    return (
        f"{level.recovered} training {things} lie nearer to a candidate than all but {level.fpr:.0%} of held-out ones; "
        f"chance alone gives as many with probability {level.chance:.2g}."
    )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _stand(count: int) -> str:
    return "stands" if count == 1 else "stand"
