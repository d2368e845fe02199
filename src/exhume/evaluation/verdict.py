"""The audit in a sentence."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from exhume.errors import counted
from exhume.evaluation.calibration import odds
from exhume.records import Audit, Comparison, Level
from exhume.records.comparison import CERTIFIED_WITHIN, EXACT, GOOD

BEYOND_CHANCE = 0.01
"""Below this probability a count is not put down to chance."""
BEYOND_CHANCE_BY_DISTANCE = 0.001
"""The same for ranks of the distance alone, which are looked at second: so that both looks together mislead hardly more
often than the first."""


class Finding(StrEnum):
    """How much an audit found, gravest first."""

    PROVEN = "proven"
    """Recoveries that carry a proof."""
    UNMATCHED = "unmatched"
    """Certificates that match none of the training data given: it is incomplete, or they are false.

    Without data the same certificates are proof, so that data which does not fit must not make them nothing.
    """
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
    if audit.certified_examples:
        return _proven(audit, audit.train)
    otherwise = _without_proof(audit, audit.train)
    return _unmatched(audit, audit.train, otherwise) if audit.certified else otherwise


def plural(audit: Audit) -> str:
    """Name what was recovered: images, or the records of a table."""
    return "images" if audit.found.inputs.ndim > 2 else "records"


def value_unit(audit: Audit) -> str:
    """Name what errors of values are measured in."""
    return "its range" if audit.bounds is not None else "its column's deviation"


NOTHING = "No training input was recovered by this attack; that is no proof of safety."
NOTHING_BEYOND_CHANCE = (
    "No training input was recovered by this attack beyond what chance explains; that is no proof of safety."
)


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
        else NOTHING,
        detail=f"No data was given to check the attack against.{size}",
    )


def _without_proof(audit: Audit, train: Comparison) -> Verdict:
    """Say what is beside certificates."""
    if train.good and _beats_null(train, audit.holdout):
        return _recovered(audit, train)
    for look in _looks(audit):
        if look.level.chance < look.limit:
            return _traces(look, audit, train)
    return _put_down_to_chance(audit, train)


def _proven(audit: Audit, train: Comparison) -> Verdict:
    things = plural(audit)
    proven, exact = audit.certified_examples or 0, audit.certified_exact or 0
    exactly = " exactly" if exact == proven else ""
    some = "" if exact in (0, proven) else f"; {exact} of them exactly"
    null = (
        f"Held-out {things} matched as exactly: {audit.holdout.exact}."
        if audit.holdout
        else "Nothing was held out to measure against."
    )
    recovered = f"{proven} of {len(train)} training {things} {_were(proven)} recovered{exactly}"
    return Verdict(
        finding=Finding.PROVEN,
        sentence=f"{recovered}, each with a proof{some}.",
        detail=f"Certificates: {audit.certified}{_doubts(audit, train)} "
        f"Exact means that no value is off by {EXACT:g} of {value_unit(audit)}. {null}",
    )


def _unmatched(audit: Audit, train: Comparison, otherwise: Verdict) -> Verdict:
    """Say that no certificate is of the data given, which is a warning; and what there is besides certificates."""
    count = audit.certified
    beside = "" if otherwise.finding is Finding.NOTHING else f" {otherwise.sentence} {otherwise.detail}"
    return Verdict(
        finding=Finding.UNMATCHED,
        sentence=f"{counted(count, 'certificate')} {_none_matches(count, audit)}.",
        detail=f"{_evidence(audit, train)}{beside}".lstrip(),
    )


def _doubts(audit: Audit, train: Comparison) -> str:
    count = audit.false_certificates
    if not count:
        return ", none of them false."
    return f". {count} of them {_none_matches(count, audit)}.{_evidence(audit, train)}"


def _none_matches(count: int, audit: Audit) -> str:
    match, are = ("matches", "it is") if count == 1 else ("match", "they are")
    return f"{match} none of the training {plural(audit)} given: either the data given is incomplete, or {are} false"


def _evidence(audit: Audit, train: Comparison) -> str:
    """Say what speaks for data that was not given."""
    said, things, estimate = "", plural(audit), audit.training_size_estimate
    if estimate is not None and estimate > len(train):
        said += f" The weights tell of {_training(estimate, audit)} and {len(train)} {_were(len(train))} given."
    if audit.holdout:
        near = audit.found.certified & (audit.holdout.nearest_errors < CERTIFIED_WITHIN)
        strangers = int((near & (train.nearest_errors >= CERTIFIED_WITHIN)).sum())
        if strangers:
            said += f" Certificates that match held-out {things}, as if those were trained on: {strangers}."
    if not said and not audit.certified_examples:
        said = " Or the network was trained on other data than was given, or on the same in other units."
    return said


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


class _Look(NamedTuple):
    """One way to see training examples stand out from held-out ones."""

    level: Level
    limit: float
    """The probability below which the count is not put down to chance."""
    way: str


def _looks(audit: Audit) -> list[_Look]:
    """Return the ways there are, the one that decides first."""
    ways = (
        (audit.relative, BEYOND_CHANCE, f"measured by the nearest other {plural(audit)[:-1]}"),
        (audit.calibration, BEYOND_CHANCE_BY_DISTANCE, "by distance alone"),
    )
    return [_Look(ranks.levels[0], limit, way) for ranks, limit, way in ways if ranks is not None]


def _traces(look: _Look, audit: Audit, train: Comparison) -> Verdict:
    level, things = look.level, plural(audit)
    stand = "stands" if level.recovered == 1 else "stand"
    return Verdict(
        finding=Finding.TRACES,
        sentence=f"{level.recovered} of {len(train)} training {things} {stand} out from held-out ones, "
        "though none was recovered.",
        detail=f"{look.way[0].upper()}{look.way[1:]}, they are nearer to a candidate than all but "
        f"{level.fpr:.0%} of held-out {things} (false-positive rate at most {max(level.fpr, level.bound):.1%}); "
        f"with the two sets exchanged: {level.holdout_recovered}. Chance gives as many with probability "
        f"{level.chance:.2g}.{_matched_as_well(audit, train)}",
    )


def _put_down_to_chance(audit: Audit, train: Comparison) -> Verdict:
    """Say that nothing was found, and why counts in the table that are not zero do not say otherwise."""
    seen = [look for look in _looks(audit) if look.level.recovered]
    well = _matched_as_well(audit, train)
    if seen:
        counts = ", ".join(
            f"{look.level.recovered} {look.way} (chance gives as many with probability {look.level.chance:.2g}; "
            f"less than {look.limit:g} would count)"
            for look in seen
        )
        nearer = f"nearer to a candidate than all but {seen[0].level.fpr:.0%} of held-out ones"
        said = f"Training {plural(audit)} {nearer}: {counts}."
    elif audit.relative is not None:
        fpr = audit.relative.levels[0].fpr
        said = f"No training {plural(audit)[:-1]} is nearer to a candidate than all but {fpr:.0%} of held-out ones."
    else:
        said = "Nothing was held out to measure against."
    sentence = NOTHING_BEYOND_CHANCE if seen or well else NOTHING
    return Verdict(finding=Finding.NOTHING, sentence=sentence, detail=said + well)


def _matched_as_well(audit: Audit, train: Comparison) -> str:
    """Say that good matches do not count where held-out examples are matched as well."""
    if not train.good or audit.holdout is None:
        return ""
    null = audit.holdout
    return (
        f" Of {len(train)} training {plural(audit)} {train.good} {_were(train.good)} matched with a mean squared error "
        f"below {GOOD:g}, and so {_were(null.good)} {null.good} of {len(null)} held-out ones, which chance explains."
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
