"""The verdict on one attack: a finding and the sentences that state it."""

from dataclasses import replace

import pytest
import torch

from exhume.evaluation import Finding, evaluate, verdict
from exhume.records import Outcome, Split
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
        assert ("beyond what chance explains" in result.sentence) is any(counts)
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
    assert f"and so were {SIZE} of {SIZE} held-out ones, which chance explains" in result.detail


def test_an_exact_and_proven_recovery_comes_first():
    data = make_data((1, 8, 8), SIZE)
    found = make_found(data.train.inputs, certified=torch.ones(SIZE, dtype=torch.bool), outcome=Outcome.CERTIFIED)
    result = verdict(evaluate(found, data))
    assert result.sentence == f"{SIZE} of {SIZE} training images were recovered exactly, each with a proof."


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
    assert f"{SIZE} of {SIZE} training images were recovered, without a proof." in result.detail


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
    assert result.sentence == "4 of 4 training images were recovered exactly, each with a proof."
    assert f"show {SIZE} training images, and 4 were given" in result.detail
