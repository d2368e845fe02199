"""The verdict on one attack: a finding and the sentences that state it."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.evaluation import Finding, evaluate, verdict
from exhume.evaluation.verdict import NOTEWORTHY, chance_of_good, describe_outcome
from exhume.records import Audit, Evaluation, Outcome, Split
from tests.evaluation.synthetic_data import make_data, make_found

SIZE = 24


def noise(shape, count, seed=7):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def test_noise_is_explained_by_chance():
    beyond_chance = 0
    for seed in range(40):
        data = make_data((1, 8, 8), SIZE, seed=seed)
        evaluation = evaluate(make_found(noise((1, 8, 8), 2 * SIZE, seed=1000 + seed)), data)
        assert evaluation.train.good == 0
        beyond_chance += verdict(evaluation).finding is not Finding.NOTHING
    assert beyond_chance <= 3  # at a level of 0.01, more has probability 1e-3


def test_blurred_copies_leave_traces_without_being_recovered():
    data = make_data((1, 8, 8), SIZE)
    evaluation = evaluate(make_found(0.5 * data.train.inputs + 0.5 * noise((1, 8, 8), SIZE)), data)
    assert evaluation.train.good == 0
    assert verdict(evaluation).finding is Finding.TRACES


def test_examples_that_occur_twice_leave_traces_by_distance_alone():
    data = make_data((1, 8, 8), SIZE)
    data.train.inputs[1::2] = data.train.inputs[::2]
    evaluation = evaluate(make_found(0.5 * data.train.inputs + 0.5 * noise((1, 8, 8), SIZE)), data)
    assert evaluation.train.good == evaluation.relative.level(0.01).recovered == 0
    assert evaluation.calibration.level(0.01).chance < 1e-6
    result = verdict(evaluation)
    assert result.finding is Finding.TRACES
    assert result.detail.startswith("By distance alone, they are nearer to a candidate")


def test_a_verdict_of_nothing_states_the_counts_that_chance_explains():
    luck = 0
    for seed in range(20):
        data = make_data((1, 8, 8), SIZE, seed=seed)
        evaluation = evaluate(make_found(noise((1, 8, 8), 2 * SIZE, seed=1000 + seed)), data)
        result = verdict(evaluation)
        if result.finding is not Finding.NOTHING:
            continue
        counts = [evaluation.relative.levels[0].recovered, evaluation.calibration.levels[0].recovered]
        luck += any(counts)
        chances = [ranks.levels[0].chance for ranks in (evaluation.relative, evaluation.calibration)]
        least = min((chance for count, chance in zip(counts, chances, strict=True) if count), default=1.0)
        assert ("beyond what chance explains" in result.sentence) is (any(counts) and least >= NOTEWORTHY)
        assert ("too little for a finding" in result.sentence) is (least < NOTEWORTHY)
        assert (f"{counts[0]} relative to the nearest other image (chance" in result.detail) is bool(counts[0])
        assert (f"{counts[1]} by distance alone (chance" in result.detail) is bool(counts[1])
    assert luck > 5, "chance does give some"


def test_good_matches_are_no_recovery_when_held_out_examples_have_as_many():
    data = make_data((1, 8, 8), SIZE)
    for split in (data.train, data.holdout):
        split.inputs.mul_(0.1)  # so dark that any two pictures are a good match
    evaluation = evaluate(make_found(0.1 * noise((1, 8, 8), SIZE)), data)
    assert evaluation.train.good == evaluation.holdout.good == SIZE
    result = verdict(evaluation)
    assert result.finding is Finding.NOTHING
    assert "beyond what chance explains" in result.sentence
    assert f"{SIZE} of {SIZE} held-out images; chance gives as many with probability 1." in result.detail


def test_an_exact_and_proven_recovery_comes_first():
    data = make_data((1, 8, 8), SIZE)
    found = make_found(data.train.inputs, certified=torch.ones(SIZE, dtype=torch.bool), outcome=Outcome.CERTIFIED)
    result = verdict(evaluate(found, data))
    assert result.sentence == (
        f"All {SIZE} training images were recovered exactly, and the attacker can prove each without the data."
    )


def test_what_was_recovered_comes_before_what_the_attacker_can_prove():
    data = make_data((1, 8, 8), SIZE)
    doubts = [""] * 4 + ["nearly the same as another candidate"] * 15 + ["too noisy"] * (SIZE - 19)
    found = make_found(data.train.inputs, certified=torch.arange(SIZE) < 4, diagnostics={"doubts": doubts})
    result = verdict(evaluate(found, data))
    assert result.sentence == (
        f"All {SIZE} training images were recovered exactly. The attacker can prove 4 of them without the data."
    )
    assert f"Without a proof: {SIZE - 4} candidates" in result.detail
    assert f"nearly the same as another candidate (15); too noisy ({SIZE - 19})." in result.detail


def test_one_good_match_against_none_is_told_with_its_probability():
    data = make_data((1, 8, 8), SIZE)
    near = data.train.inputs[:1] + 0.08 * torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    evaluation = evaluate(make_found(torch.cat([near, noise((1, 8, 8), SIZE)])), data)
    assert (evaluation.train.good, evaluation.train.exact, evaluation.holdout.good) == (1, 0, 0)
    result = verdict(evaluation)
    assert result.finding is not Finding.RECOVERED
    assert "chance gives as many with probability 0.5." in result.detail


def test_candidates_without_a_certificate_are_not_called_nothing():
    found = make_found(noise((1, 8, 8), 3), outcome=Outcome.NOTHING_FOUND)
    assert describe_outcome(found) == "nothing certified"
    assert describe_outcome(make_found(noise((1, 8, 8), 0), outcome=Outcome.NOTHING_FOUND)) == "nothing found"


@pytest.mark.parametrize("count", [1, SIZE])
def test_certificates_that_match_no_data_are_a_warning_and_neither_a_recovery_nor_nothing(count):
    data = make_data((30,), SIZE)
    other = make_data((30,), count, seed=5).train.inputs
    evaluation = evaluate(make_found(other, certified=torch.ones(count, dtype=torch.bool)), data)
    assert evaluation.false_certificates == count
    result = verdict(evaluation)
    assert result.finding is Finding.UNMATCHED
    assert result.sentence == (
        "1 certificate matches none of the training records given: either the data given is incomplete, or it is false."
        if count == 1
        else f"{count} certificates match none of the training records given: either the data given is incomplete, or "
        "they are false."
    )
    assert "the network was trained on other data" in result.detail
    assert "recovered" not in result.sentence + result.detail


def test_certificates_of_held_out_examples_are_reported():
    data = make_data((1, 8, 8), SIZE)
    evaluation = evaluate(make_found(data.holdout.inputs[:3], certified=torch.ones(3, dtype=torch.bool)), data)
    assert "match held-out images, as if those were trained on: 3" in verdict(evaluation).detail


def test_unmatched_certificates_do_not_hide_what_was_recovered_without_them():
    data = make_data((1, 8, 8), SIZE)
    inputs = torch.cat([data.train.inputs, make_data((1, 8, 8), 2, seed=5).train.inputs])
    certified = torch.arange(len(inputs)) >= SIZE
    result = verdict(evaluate(make_found(inputs, certified=certified), data))
    assert result.finding is Finding.UNMATCHED
    assert f"All {SIZE} training images were recovered exactly. The attacker has no proof of it." in result.detail


def test_proofs_of_examples_that_were_not_given_are_not_called_false():
    data = make_data((1, 8, 8), SIZE)
    proven = make_found(
        data.train.inputs,
        certified=torch.ones(SIZE, dtype=torch.bool),
        diagnostics={"training_size_estimate": SIZE, "training_size_is_clear": True},
    )
    assert "given" not in verdict(evaluate(proven, data)).detail
    half = replace(data, train=Split(inputs=data.train.inputs[:4], labels=data.train.labels[:4]))
    result = verdict(evaluate(proven, half))
    assert result.sentence == (
        "All 4 training images were recovered exactly, and the attacker can prove each without the data."
    )
    assert f"show {SIZE} training images, and 4 were given" in result.detail


CASES = st.fixed_dictionaries(
    {
        "size": st.integers(1, 8),
        "held_out": st.integers(0, 8),
        "is_dark": st.booleans(),
        "counts": st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8)),
        "certified": st.sampled_from([0.0, 0.3, 1.0]),
        "has_doubts": st.booleans(),
        "has_data": st.sampled_from([True, True, True, True, False]),
        "seed": st.integers(0, 99),
    }
)
"""How many candidates are exact, close or unrelated, and which share of them is certified."""


def build_case(case) -> Evaluation:
    data = make_data((1, 4, 4), case["size"], seed=case["seed"], holdout=case["held_out"])
    if case["is_dark"]:
        for split in (data.train, data.holdout):
            split.inputs.mul_(0.1)
    exact, close, other = case["counts"]
    generator = torch.Generator().manual_seed(case["seed"])
    close_to = data.train.inputs[:close]
    blur = 0.08 * torch.randn(close_to.shape, generator=generator)
    unrelated = torch.rand(other, 1, 4, 4, generator=generator)
    inputs = torch.cat([data.train.inputs[:exact], close_to + blur, unrelated])
    certified = torch.rand(len(inputs), generator=generator) < case["certified"]
    doubts = ["" if proof else "a reason" for proof in certified.tolist()]
    found = make_found(inputs, certified=certified, diagnostics={"doubts": doubts} if case["has_doubts"] else {})
    return evaluate(found, data if case["has_data"] else None)


@settings(max_examples=150)
@given(case=CASES)
def test_the_sentences_and_the_numbers_of_a_verdict_agree(case):
    evaluation = build_case(case)
    result = verdict(evaluation)
    said, train, null = f"{result.sentence} {result.detail}", evaluation.train, evaluation.holdout
    if train is None:
        assert (result.finding is Finding.PROVEN) is bool(evaluation.certified)
        return
    counts = re.findall(r"(?:All (\d+)|(\d+) of (\d+)) training images? (?:was|were) recovered( exactly)?", said)
    for everyone, some, of, exactly in counts:
        count = int(everyone or some)
        assert int(of or everyone) == len(train)
        assert count == train.exact if exactly else count <= len(train)
        assert count > 0
    for proven in re.findall(r"can prove (\d+) of them", said):
        assert int(proven) == evaluation.certified_examples
    assert bool(counts) is (
        result.finding in (Finding.PROVEN, Finding.RECOVERED) or "The attacker has no proof of it." in said
    )
    if "chance explains" in said and null is not None:
        assert not train.good or chance_of_good(train, null) >= NOTEWORTHY
    if result.finding is Finding.RECOVERED and null is not None and len(null):
        assert "chance gives as many with probability" in said
    if "No training image is nearer" in said:
        assert evaluation.relative.levels[0].recovered == evaluation.calibration.levels[0].recovered == 0


@settings(max_examples=60)
@given(cases=st.tuples(CASES, CASES))
def test_the_verdict_of_an_audit_contradicts_none_of_its_attacks(cases):
    one, other = map(build_case, cases)
    result = verdict(Audit(evaluations={"one": one, "other": other}))
    if result.finding is not Finding.NOTHING:
        return
    for evaluation in (one, other):
        assert verdict(evaluation).finding is Finding.NOTHING
        assert verdict(evaluation).detail in result.detail
