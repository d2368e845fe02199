"""The audit in a sentence."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from exhume.core.text import count_noun
from exhume.evaluation.calibration import odds
from exhume.records import Comparison, Evaluation, Level
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


def verdict_of_evaluation(evaluation: Evaluation) -> Verdict:
    """Say in plain words what an audit found, each count with its null."""
    if evaluation.train is None:
        return _without_data(evaluation)
    if evaluation.certified_examples:
        return _proven(evaluation, evaluation.train)
    otherwise = _without_proof(evaluation, evaluation.train)
    return _unmatched(evaluation, evaluation.train, otherwise) if evaluation.certified else otherwise


def plural(evaluation: Evaluation) -> str:
    """Name what was recovered: images, or the records of a table."""
    return "images" if evaluation.found.inputs.ndim > 2 else "records"


def value_unit(evaluation: Evaluation) -> str:
    """Name what errors of values are measured in."""
    return "its range" if evaluation.bounds is not None else "its column's deviation"


NOTHING = "No training input was recovered by this attack; that is no proof of safety."
NOTHING_BEYOND_CHANCE = (
    "No training input was recovered by this attack beyond what chance explains; that is no proof of safety."
)


def _without_data(evaluation: Evaluation) -> Verdict:
    candidates = len(evaluation.found)
    estimate = evaluation.training_size_estimate
    size = "" if estimate is None else f" The weights tell of {_training(estimate, evaluation)}."
    if evaluation.certified:
        return Verdict(
            finding=Finding.PROVEN,
            sentence=(
                f"{_training(evaluation.certified, evaluation)} {_were(evaluation.certified)} recovered, "
                "each with a proof."
            ),
            detail=f"No data was given to check them against, and the proofs need none.{size}",
        )
    return Verdict(
        finding=Finding.UNPROVEN if candidates else Finding.NOTHING,
        sentence=f"No proof for any of the candidates, {candidates} in number: plausible perhaps, but unproven."
        if candidates
        else NOTHING,
        detail=f"No data was given to check the attack against.{size}",
    )


def _without_proof(evaluation: Evaluation, train: Comparison) -> Verdict:
    """Say what is beside certificates."""
    if train.good and _beats_null(train, evaluation.holdout):
        return _recovered(evaluation, train)
    for look in _looks(evaluation):
        if look.level.chance < look.limit:
            return _traces(look, evaluation, train)
    return _put_down_to_chance(evaluation, train)


def _proven(evaluation: Evaluation, train: Comparison) -> Verdict:
    things = plural(evaluation)
    proven, exact = evaluation.certified_examples or 0, evaluation.certified_exact or 0
    exactly = " exactly" if exact == proven else ""
    some = "" if exact in (0, proven) else f"; {exact} of them exactly"
    null = (
        f"Held-out {things} matched as exactly: {evaluation.holdout.exact}."
        if evaluation.holdout
        else "Nothing was held out to measure against."
    )
    recovered = f"{proven} of {len(train)} training {things} {_were(proven)} recovered{exactly}"
    return Verdict(
        finding=Finding.PROVEN,
        sentence=f"{recovered}, each with a proof{some}.",
        detail=f"Certificates: {evaluation.certified}{_doubts(evaluation, train)} "
        f"Exact means that no value is off by {EXACT:g} of {value_unit(evaluation)}. {null}",
    )


def _unmatched(evaluation: Evaluation, train: Comparison, otherwise: Verdict) -> Verdict:
    """Say that no certificate is of the data given, which is a warning; and what there is besides certificates."""
    count = evaluation.certified
    beside = "" if otherwise.finding is Finding.NOTHING else f" {otherwise.sentence} {otherwise.detail}"
    return Verdict(
        finding=Finding.UNMATCHED,
        sentence=f"{count_noun(count, 'certificate')} {_none_matches(count, evaluation)}.",
        detail=f"{_evidence(evaluation, train)}{beside}".lstrip(),
    )


def _doubts(evaluation: Evaluation, train: Comparison) -> str:
    count = evaluation.false_certificates
    if not count:
        return ", none of them false."
    return f". {count} of them {_none_matches(count, evaluation)}.{_evidence(evaluation, train)}"


def _none_matches(count: int, evaluation: Evaluation) -> str:
    match, are = ("matches", "it is") if count == 1 else ("match", "they are")
    return (
        f"{match} none of the training {plural(evaluation)} given: either the data given is incomplete, or {are} false"
    )


def _evidence(evaluation: Evaluation, train: Comparison) -> str:
    """Say what speaks for data that was not given."""
    said, things, estimate = "", plural(evaluation), evaluation.training_size_estimate
    if estimate is not None and estimate > len(train):
        said += f" The weights tell of {_training(estimate, evaluation)} and {len(train)} {_were(len(train))} given."
    if evaluation.holdout:
        near = evaluation.found.certified & (evaluation.holdout.nearest_errors < CERTIFIED_WITHIN)
        strangers = int((near & (train.nearest_errors >= CERTIFIED_WITHIN)).sum())
        if strangers:
            said += f" Certificates that match held-out {things}, as if those were trained on: {strangers}."
    if not said and not evaluation.certified_examples:
        said = " Or the network was trained on other data than was given, or on the same in other units."
    return said


def _recovered(evaluation: Evaluation, train: Comparison) -> Verdict:
    things, null = plural(evaluation), evaluation.holdout
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


def _looks(evaluation: Evaluation) -> list[_Look]:
    """Return the ways there are, the one that decides first."""
    ways = (
        (evaluation.relative, BEYOND_CHANCE, f"measured by the nearest other {plural(evaluation)[:-1]}"),
        (evaluation.calibration, BEYOND_CHANCE_BY_DISTANCE, "by distance alone"),
    )
    return [_Look(ranks.levels[0], limit, way) for ranks, limit, way in ways if ranks is not None]


def _traces(look: _Look, evaluation: Evaluation, train: Comparison) -> Verdict:
    level, things = look.level, plural(evaluation)
    stand = "stands" if level.recovered == 1 else "stand"
    return Verdict(
        finding=Finding.TRACES,
        sentence=f"{level.recovered} of {len(train)} training {things} {stand} out from held-out ones, "
        "though none was recovered.",
        detail=f"{look.way[0].upper()}{look.way[1:]}, they are nearer to a candidate than all but "
        f"{level.fpr:.0%} of held-out {things} (false-positive rate at most {max(level.fpr, level.bound):.1%}); "
        f"with the two sets exchanged: {level.holdout_recovered}. Chance gives as many with probability "
        f"{level.chance:.2g}.{_matched_as_well(evaluation, train)}",
    )


def _put_down_to_chance(evaluation: Evaluation, train: Comparison) -> Verdict:
    """Say that nothing was found, and why counts in the table that are not zero do not say otherwise."""
    seen = [look for look in _looks(evaluation) if look.level.recovered]
    well = _matched_as_well(evaluation, train)
    if seen:
        counts = ", ".join(
            f"{look.level.recovered} {look.way} (chance gives as many with probability {look.level.chance:.2g}; "
            f"less than {look.limit:g} would count)"
            for look in seen
        )
        nearer = f"nearer to a candidate than all but {seen[0].level.fpr:.0%} of held-out ones"
        said = f"Training {plural(evaluation)} {nearer}: {counts}."
    elif evaluation.relative is not None:
        fpr = evaluation.relative.levels[0].fpr
        said = (
            f"No training {plural(evaluation)[:-1]} is nearer to a candidate than all but {fpr:.0%} of held-out ones."
        )
    else:
        said = "Nothing was held out to measure against."
    sentence = NOTHING_BEYOND_CHANCE if seen or well else NOTHING
    return Verdict(finding=Finding.NOTHING, sentence=sentence, detail=said + well)


def _matched_as_well(evaluation: Evaluation, train: Comparison) -> str:
    """Say that good matches do not count where held-out examples are matched as well."""
    if not train.good or evaluation.holdout is None:
        return ""
    null = evaluation.holdout
    return (
        f" Of {len(train)} training {plural(evaluation)} {train.good} {_were(train.good)} matched with a mean "
        "squared error "
        f"below {GOOD:g}, and so {_were(null.good)} {null.good} of {len(null)} held-out ones, which chance explains."
    )


def _beats_null(train: Comparison, null: Comparison | None) -> bool:
    """Tell whether good recoveries are more than the null explains; an empty null explains none."""
    if null is None or null.good == 0:
        return True
    return odds(train.good, train.good + null.good, len(train), len(null)) < BEYOND_CHANCE


def _training(count: int, evaluation: Evaluation) -> str:
    return f"{count} training {plural(evaluation) if count != 1 else plural(evaluation)[:-1]}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
