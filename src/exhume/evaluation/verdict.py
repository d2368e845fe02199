"""The verdict on one attack: a finding, and the sentences that state it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from exhume.core.text import count_noun
from exhume.evaluation.calibration import chance_of_count
from exhume.records import Comparison, Evaluation, Level, Outcome, Reconstruction
from exhume.records.comparison import CERTIFIED_WITHIN, EXACT, GOOD

BEYOND_CHANCE = 0.01
"""Probability of a count by chance, below which it counts as a finding."""
BEYOND_CHANCE_BY_DISTANCE = 0.001
"""The same for ranks of the distance alone. They are tested second, and this stricter limit keeps the error rate of
both tests together near that of the first."""

NOTEWORTHY = 0.05
"""Probability of a count by chance, below which a verdict no longer says that chance explains it."""


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
    """Return the word for the inputs: images, the records of a table, or what a layer reads for them."""
    if "features_of" in evaluation.found.diagnostics:
        return "feature vectors"
    return "images" if evaluation.found.inputs.ndim > 2 else "records"


def value_unit(evaluation: Evaluation) -> str:
    """Return the unit of errors of single values."""
    return "its range" if evaluation.bounds is not None else "its column's deviation"


NO_HOLDOUT = "There is no hold-out set to compare with."
NO_SAFETY = "that is no proof of safety."
NOTHING = f"No training input was recovered by this attack; {NO_SAFETY}"
NOTHING_BEYOND_CHANCE = f"No training input was recovered by this attack beyond what chance explains; {NO_SAFETY}"
NOTHING_CERTAIN = (
    f"No training input was recovered by this attack, and what stands out is too little for a finding; {NO_SAFETY}"
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
        count = evaluation.certified
        return Verdict(
            finding=Finding.PROVEN,
            sentence=f"{_training(count, evaluation)} {_were(count)} recovered, and the attacker can prove each.",
            detail=f"The proofs need no data, and none was given to check them with.{_why_unproven(evaluation)}{size}",
        )
    return Verdict(
        finding=Finding.UNPROVEN if candidates else Finding.NOTHING,
        sentence=f"{count_noun(candidates, 'candidate')} without a proof: perhaps plausible, but unproven."
        if candidates
        else NOTHING,
        detail=f"No data was given to check the attack with.{_why_unproven(evaluation)}{size}",
    )


def _without_proof(evaluation: Evaluation, train: Comparison) -> Verdict:
    """State what was found apart from certificates."""
    if is_recovery(train, evaluation.holdout):
        return _recovered(evaluation, train)
    for test in _rank_tests(evaluation):
        if test.level.chance < test.limit:
            return _traces(test, evaluation, train)
    return _nothing(evaluation, train)


def is_recovery(train: Comparison, null: Comparison | None) -> bool:
    """Return whether good matches of training examples are recoveries, and not what chance explains.

    One exact match where no held-out example has one is a recovery; otherwise there must be more good matches than
    chance gives.
    """
    if null is None or not len(null):
        return train.good > 0
    return (train.exact > 0 and null.exact == 0) or chance_of_good(train, null) < BEYOND_CHANCE


def chance_of_good(train: Comparison, null: Comparison) -> float:
    """Return the probability of so many good matches among training examples if the attack knew nothing."""
    return chance_of_count(train.good, train.good + null.good, len(train), len(null))


def _proven(evaluation: Evaluation, train: Comparison) -> Verdict:
    proven, null = evaluation.certified_examples or 0, evaluation.holdout
    exact, shown = train.exact, train.good if is_recovery(train, null) else 0
    is_exact = exact >= max(proven, 1) and not (null and null.exact)
    recovered = exact if is_exact else max(proven, shown)
    how = " exactly" if is_exact else ""
    more = f", and {shown - exact} more closely" if is_exact and shown > exact else ""
    if proven == recovered and not more:
        proof = f", and the attacker can prove {'it' if proven == 1 else 'each'} without the data."
    else:
        proof = f". The attacker can prove {proven} of them without the data."
    against = f"Held-out {plural(evaluation)} matched exactly: {null.exact} of {len(null)}." if null else NO_HOLDOUT
    some = "" if is_exact or not exact else f" Matched exactly: {exact}."
    return Verdict(
        finding=Finding.PROVEN,
        sentence=f"{_share(recovered, train, evaluation)} {_were(recovered)} recovered{how}{more}{proof}",
        detail=f"Certificates: {evaluation.certified}{_doubts(evaluation, train)}{_why_unproven(evaluation)}{some} "
        f"Exact means that no value is off by {EXACT:g} of {value_unit(evaluation)}. {against}",
    )


def _why_unproven(evaluation: Evaluation) -> str:
    """State how many candidates have no certificate and why, the most frequent reason first."""
    reasons = [reason for reason in list_doubts(evaluation) if reason]
    if not reasons:
        return ""
    counted = "; ".join(f"{reason} ({count})" for reason, count in Counter(reasons).most_common())
    return f" Without a proof: {count_noun(len(reasons), 'candidate')}. Reasons: {counted}."


def list_doubts(evaluation: Evaluation) -> list[str]:
    """Return for each candidate why it has no certificate; empty where it has one, or no reason is known."""
    doubts, candidates = evaluation.found.diagnostics.get("doubts"), len(evaluation.found)
    if not isinstance(doubts, Sequence) or len(doubts) != candidates:
        return [""] * candidates
    proofs = zip(doubts, evaluation.found.certified.tolist(), strict=True)
    return ["" if is_certified else str(doubt or "") for doubt, is_certified in proofs]


def describe_outcome(found: Reconstruction) -> str:
    """Return how an attack ended in words that do not contradict its candidates."""
    if found.outcome is Outcome.NOTHING_FOUND and len(found):
        return "nothing certified"
    return found.outcome.value


def _share(count: int, train: Comparison, evaluation: Evaluation) -> str:
    """Return a count of the training examples: ``All 40 training images``, ``4 of 40 training images``."""
    if count == len(train) > 1:
        return f"All {count} training {plural(evaluation)}"
    return f"{count} of {len(train)} training {plural(evaluation)}"


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
    null = evaluation.holdout
    is_exact = train.exact > 0 and not (null and null.exact)
    count = train.exact if is_exact else train.good
    more = f", and {train.good - count} more closely" if train.good > count else ""
    return Verdict(
        finding=Finding.RECOVERED,
        sentence=f"{_share(count, train, evaluation)} {_were(count)} recovered{' exactly' if is_exact else ''}{more}. "
        "The attacker has no proof of it.",
        detail=f"{_compare_good(evaluation, train)}{_why_unproven(evaluation)}",
    )


def _compare_good(evaluation: Evaluation, train: Comparison) -> str:
    """State how many examples of both sets are matched well, and the probability of that by chance."""
    null, things = evaluation.holdout, plural(evaluation)
    said = f"Matched with a mean squared error below {GOOD:g}: {train.good} of {len(train)} training {things}"
    if not null or not len(null):
        return f"{said}. {NO_HOLDOUT}"
    return (
        f"{said}, {null.good} of {len(null)} held-out {things}; chance gives as many with probability "
        f"{chance_of_good(train, null):.2g}."
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
        f"{level.chance:.2g}.{_matched_too(evaluation, train)}",
    )


def _nothing(evaluation: Evaluation, train: Comparison) -> Verdict:
    """State that nothing was found, and why counts above zero do not contradict that."""
    null, tests = evaluation.holdout, _rank_tests(evaluation)
    seen = [test for test in tests if test.level.recovered]
    chances = [test.level.chance for test in seen]
    if train.good and null:
        chances.append(chance_of_good(train, null))
    if seen:
        counts = ", ".join(
            f"{test.level.recovered} {test.way} (chance gives as many with probability {test.level.chance:.2g}; "
            f"less than {test.limit:g} would count)"
            for test in seen
        )
        said = f"Training {plural(evaluation)} {_nearer(seen[0])}: {counts}."
    elif tests:
        said = f"No training {plural(evaluation)[:-1]} is {_nearer(tests[0])}."
    else:
        said = NO_HOLDOUT
    sentence = NOTHING if not chances else NOTHING_BEYOND_CHANCE if min(chances) >= NOTEWORTHY else NOTHING_CERTAIN
    detail = f"{said}{_matched_too(evaluation, train)}{_why_unproven(evaluation)}"
    return Verdict(finding=Finding.NOTHING, sentence=sentence, detail=detail)


def _nearer(test: _RankTest) -> str:
    return f"nearer to a candidate than all but {test.level.fpr:.0%} of held-out ones"


def _matched_too(evaluation: Evaluation, train: Comparison) -> str:
    """State the counts of good matches where there are any."""
    return f" {_compare_good(evaluation, train)}" if train.good else ""


def _training(count: int, evaluation: Evaluation) -> str:
    return f"{count} training {plural(evaluation) if count != 1 else plural(evaluation)[:-1]}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
