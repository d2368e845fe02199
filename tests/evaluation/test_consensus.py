"""Consensus: agreement between runs, what a certificate proves, and claims within the error bars of beliefs."""

from dataclasses import replace

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.evaluation.belief import learn_belief
from exhume.evaluation.consensus import are_true, gather, memberships
from tests.evaluation.synthetic_data import make_data, make_found


def found(inputs, end=0.1, **others):
    return make_found(inputs, confidence=torch.full((len(inputs),), 0.5), history=torch.tensor([1.0, end]), **others)


def pictures(count, seed):
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


def test_agreement_is_with_other_runs_only():
    shared, alone = pictures(1, 0), pictures(3, 1)
    first, second = torch.cat([shared, alone[:1], alone[:1]]), torch.cat([alone[1:], shared])
    evidence = gather([found(first), found(second)])
    assert evidence.agreement[0] == pytest.approx(1.0)
    assert evidence.agreement[5] == pytest.approx(1.0)
    assert bool((evidence.agreement[[1, 2, 3, 4]] < 0.8).all()), "a run's own repetitions prove nothing"
    assert evidence.run.tolist() == [0, 0, 0, 1, 1, 1]
    assert gather([found(first)]).agreement.tolist() == [0.0, 0.0, 0.0]


def test_every_kind_of_evidence_rises_with_belief():
    evidence = gather([found(pictures(2, 0), end=0.5), found(pictures(2, 1), end=0.01)])
    scores = evidence.score("residual")
    assert scores[0] < scores[2]
    assert evidence.score("certificate").unique().numel() == 1
    assert evidence.score("confidence").tolist() == [0.5] * 4


def test_a_certificate_proves_equal_candidates_of_other_attacks():
    truth = pictures(2, 0)
    blurred = truth + 0.05 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
    unrelated = pictures(1, 7)
    run = found(torch.cat([blurred, unrelated]))
    proof = found(truth, certified=torch.tensor([True, False]), p_values=torch.tensor([1e-9, 1e-9]))
    evidence = gather([run, run], certificates=[proof])
    assert evidence.is_proven.tolist() == [True, False, False] * 2
    verdicts = memberships(evidence)
    assert verdicts[0].claimed
    assert verdicts[0].error_rate == 1e-3, "no surer than the run that certifies is as a whole"
    assert verdicts[0].sentence.startswith("In the training set")
    assert verdicts[1].sentence.startswith("Plausible but unproven: it was not measured")


def test_a_belief_claims_only_what_its_error_bar_allows():
    scores = torch.cat([torch.full((600,), 0.99), torch.full((100,), 0.5)])
    truth = torch.cat([torch.ones(600), (torch.arange(100) % 4 == 0).float()]).bool()
    belief = learn_belief(scores, truth)
    same, other = pictures(1, 0), pictures(1, 1)
    evidence = gather([found(same), found(torch.cat([same, other]))])
    sure, _, unsure = memberships(evidence, belief)
    assert sure.claimed
    assert sure.error_rate < 0.01
    assert sure.basis == "agreement"
    assert not unsure.claimed
    assert "25%" in unsure.sentence
    assert "unproven" in unsure.sentence
    few = learn_belief(scores[::20], truth[::20], least=5)
    assert not any(one.claimed for one in memberships(evidence, few)), "thirty true ones are no proof at one percent"


def test_a_candidate_is_true_if_it_matches_well_and_no_held_out_example_matches_better():
    data = make_data((1, 6, 6), 6)
    close = data.train.inputs[:2] + 0.01
    nearer_to_held_out = torch.lerp(data.train.inputs[:1], data.holdout.inputs[:1], 0.8)
    candidates = torch.cat([close, nearer_to_held_out, data.holdout.inputs[:1]])
    assert are_true(candidates, data).tolist() == [True, True, False, False]
    without_hold_out = replace(
        data, holdout=replace(data.holdout, inputs=data.holdout.inputs[:0], labels=data.holdout.labels[:0])
    )
    assert are_true(close, without_hold_out).all()


def test_evidence_needs_a_run():
    with pytest.raises(ExhumeError, match="at least one run"):
        gather([])
    nothing = gather([found(pictures(0, 0))])
    assert len(nothing) == 0
    assert memberships(nothing) == []
