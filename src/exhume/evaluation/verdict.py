"""The verdict on one attack: a finding, and the sentences that state it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from exhume.core.text import count_noun
from exhume.evaluation.calibration import chance_of_count
from exhume.records import Comparison, Evaluation, Level
from exhume.records.comparison import CERTIFIED_WITHIN, EXACT, GOOD

BEYOND_CHANCE = 0.01
"""Probability of a count by chance, below which it counts as a finding."""
BEYOND_CHANCE_BY_DISTANCE = 0.001
"""The same for ranks of the distance alone. They are tested second, and this stricter limit keeps the error rate of
both tests together near that of the first."""


class Finding(StrEnum):
    """How much an attack found, gravest first."""

    PROVEN = "proven"
    """Recoveries that carry a proof."""
    UNMATCHED = "unmatched"
    """Certificates that match none of the training data given: the data is incomplete, or the certificates are false.

    Without data the same certificates count as proof, so data that does not fit must not turn them into nothing.
    """
    RECOVERED = "recovered"
    """Recoveries that show training examples, but carry no proof that the attacker could rely on."""
    TRACES = "traces"
    """Training examples stand out from held-out ones, but none is shown."""
    UNPROVEN = "unproven"
    """Candidates without a proof, and no data to check them with."""
    NOTHING = "nothing"
    """Nothing beyond chance."""
    UNTESTED = "untested"
    """No attack applies, or none finished, so nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A finding, stated in one sentence, and its evidence."""

    finding: Finding
    sentence: str
    detail: str


def verdict_of_evaluation(evaluation: Evaluation) -> Verdict:
    """State what one attack found, with the count on held-out data beside each count."""
    if evaluation.train is None:
        return _without_data(evaluation)
    if evaluation.certified_examples:
        return _proven(evaluation, evaluation.train)
    otherwise = _without_proof(evaluation, evaluation.train)
    return _unmatched(evaluation, evaluation.train, otherwise) if evaluation.certified else otherwise


def plural(evaluation: Evaluation) -> str:
    """Return the word for the inputs: images, or the records of a table."""
    return "images" if evaluation.found.inputs.ndim > 2 else "records"


def value_unit(evaluation: Evaluation) -> str:
    """Return the unit of errors of single values."""
    return "its range" if evaluation.bounds is not None else "its column's deviation"


NOTHING = "No training input was recovered by this attack; that is no proof of safety."
NO_HOLDOUT = "There is no hold-out set to compare with."
NOTHING_BEYOND_CHANCE = (
    "No training input was recovered by this attack beyond what chance explains; that is no proof of safety."
)


def describe_size(evaluation: Evaluation) -> str:
    """State the number of training inputs that the weights show, without a full stop; empty where they show none."""
    estimate = evaluation.training_size_estimate
    if estimate is None:
        return ""
    if evaluation.training_size_is_clear:
        return f"The weights show {_training(estimate, evaluation)}"
    doubt = evaluation.found.diagnostics.get("training_size_doubt")
    return f"The weights show at least {_training(estimate, evaluation)}" + (f" ({doubt})" if doubt else "")


def _without_data(evaluation: Evaluation) -> Verdict:
    candidates = len(evaluation.found)
    size = "" if evaluation.training_size_estimate is None else f" {describe_size(evaluation)}."
    if evaluation.certified:
        return Verdict(
            finding=Finding.PROVEN,
            sentence=(
                f"{_training(evaluation.certified, evaluation)} {_were(evaluation.certified)} recovered, "
                "each with a proof."
            ),
            detail=f"The proofs need no data, and none was given to check them with.{size}",
        )
    return Verdict(
        finding=Finding.UNPROVEN if candidates else Finding.NOTHING,
        sentence=f"{count_noun(candidates, 'candidate')} without a proof: perhaps plausible, but unproven."
        if candidates
        else NOTHING,
        detail=f"No data was given to check the attack with.{size}",
    )


def _without_proof(evaluation: Evaluation, train: Comparison) -> Verdict:
    """State what was found apart from certificates."""
    if train.good and _beats_null(train, evaluation.holdout):
        return _recovered(evaluation, train)
    for test in _rank_tests(evaluation):
        if test.level.chance < test.limit:
            return _traces(test, evaluation, train)
    return _explained_by_chance(evaluation, train)


def _proven(evaluation: Evaluation, train: Comparison) -> Verdict:
    things = plural(evaluation)
    proven, exact = evaluation.certified_examples or 0, evaluation.certified_exact or 0
    exactly = " exactly" if exact == proven else ""
    some = "" if exact in (0, proven) else f"; {exact} of them exactly"
    null = f"Held-out {things} matched exactly: {evaluation.holdout.exact}." if evaluation.holdout else NO_HOLDOUT
    recovered = f"{proven} of {len(train)} training {things} {_were(proven)} recovered{exactly}"
    return Verdict(
        finding=Finding.PROVEN,
        sentence=f"{recovered}, each with a proof{some}.",
        detail=f"Certificates: {evaluation.certified}{_doubts(evaluation, train)} "
        f"Exact means that no value is off by {EXACT:g} of {value_unit(evaluation)}. {null}",
    )


def _unmatched(evaluation: Evaluation, train: Comparison, otherwise: Verdict) -> Verdict:
    """Warn that no certificate matches the data given, and state what was found apart from certificates."""
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
    """State the evidence that the data given is incomplete."""
    said, things, estimate = "", plural(evaluation), evaluation.training_size_estimate
    if estimate is not None and estimate > len(train):
        said += f" {describe_size(evaluation)}, and {len(train)} {_were(len(train))} given."
    if evaluation.holdout:
        near = evaluation.found.certified & (evaluation.holdout.nearest_errors < CERTIFIED_WITHIN)
        count = int((near & (train.nearest_errors >= CERTIFIED_WITHIN)).sum())
        if count:
            said += f" Certificates that match held-out {things}, as if those were trained on: {count}."
    if not said and not evaluation.certified_examples:
        said = " Or the network was trained on other data, or on the same data in other units."
    return said


def _recovered(evaluation: Evaluation, train: Comparison) -> Verdict:
    things, null = plural(evaluation), evaluation.holdout
    against = (
        "there is no hold-out set"
        if not null
        else f"{null.good} of {len(null)} held-out {things} are matched as closely"
    )
    return Verdict(
        finding=Finding.RECOVERED,
        sentence=f"{train.good} of {len(train)} training {things} {_were(train.good)} recovered, without a proof.",
        detail=f"Their mean squared error per value is below {GOOD:g}; {against}.",
    )


class _RankTest(NamedTuple):
    """One test of whether training examples stand out from held-out ones."""

    level: Level
    limit: float
    """The probability by chance below which the count is a finding."""
    way: str


def _rank_tests(evaluation: Evaluation) -> list[_RankTest]:
    """Return the tests in the order in which they decide."""
    ways = (
        (evaluation.relative, BEYOND_CHANCE, f"relative to the nearest other {plural(evaluation)[:-1]}"),
        (evaluation.calibration, BEYOND_CHANCE_BY_DISTANCE, "by distance alone"),
    )
    return [_RankTest(ranks.levels[0], limit, way) for ranks, limit, way in ways if ranks is not None]


def _traces(test: _RankTest, evaluation: Evaluation, train: Comparison) -> Verdict:
    level, things = test.level, plural(evaluation)
    stand = "stands" if level.recovered == 1 else "stand"
    return Verdict(
        finding=Finding.TRACES,
        sentence=f"{level.recovered} of {len(train)} training {things} {stand} out from held-out ones, "
        "though none was recovered.",
        detail=f"{test.way[0].upper()}{test.way[1:]}, they are nearer to a candidate than all but "
        f"{level.fpr:.0%} of held-out {things} (false-positive rate at most {max(level.fpr, level.bound):.1%}); "
        f"with the two sets exchanged: {level.holdout_recovered}. Chance gives as many with probability "
        f"{level.chance:.2g}.{_matched_by_both(evaluation, train)}",
    )


def _explained_by_chance(evaluation: Evaluation, train: Comparison) -> Verdict:
    """State that nothing was found, and why counts above zero do not contradict that."""
    seen = [test for test in _rank_tests(evaluation) if test.level.recovered]
    well = _matched_by_both(evaluation, train)
    if seen:
        counts = ", ".join(
            f"{test.level.recovered} {test.way} (chance gives as many with probability {test.level.chance:.2g}; "
            f"less than {test.limit:g} would count)"
            for test in seen
        )
        nearer = f"nearer to a candidate than all but {seen[0].level.fpr:.0%} of held-out ones"
        said = f"Training {plural(evaluation)} {nearer}: {counts}."
    elif evaluation.relative is not None:
        fpr = evaluation.relative.levels[0].fpr
        said = (
            f"No training {plural(evaluation)[:-1]} is nearer to a candidate than all but {fpr:.0%} of held-out ones."
        )
    else:
        said = NO_HOLDOUT
    sentence = NOTHING_BEYOND_CHANCE if seen or well else NOTHING
    return Verdict(finding=Finding.NOTHING, sentence=sentence, detail=said + well)


def _matched_by_both(evaluation: Evaluation, train: Comparison) -> str:
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
    """Return whether there are more good recoveries than chance explains; without a hold-out set, any is more."""
    if null is None or null.good == 0:
        return True
    return chance_of_count(train.good, train.good + null.good, len(train), len(null)) < BEYOND_CHANCE


def _training(count: int, evaluation: Evaluation) -> str:
    return f"{count} training {plural(evaluation) if count != 1 else plural(evaluation)[:-1]}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
