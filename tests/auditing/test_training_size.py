"""The training set size: read off the weights, stated, or taken from the data with a remark."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from exhume.attacks import Bilevel, GateCertificate, WeightDifference
from exhume.auditing import audit
from exhume.auditing.orchestrator import _describe_end
from exhume.auditing.training_size import give_size
from exhume.core.run_context import OutOfTime
from exhume.evaluation import verdict
from exhume.records import Applicability, AttackerView
from tests.auditing.audited_networks import digits, trained

ATTACKS = {"gate-certificate": GateCertificate(), "weight-difference": WeightDifference(steps=30)}


def convolutional_view(**facts: object) -> AttackerView:
    """A small convolutional network after one step of Adam, which shows no size."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    split = digits().train
    (model(split.inputs).flatten() - split.labels.float()).square().mean().backward()
    optimiser.step()
    return AttackerView(
        model=model, initial=initial, final=dict(model.state_dict()), input_shape=(1, 8, 8), training=facts
    )


def test_a_size_that_the_weights_show_is_not_given() -> None:
    view, attacks, remarks = give_size(trained(), ATTACKS, digits())
    assert (view, attacks, remarks) == (trained(), ATTACKS, {})


def test_a_hidden_size_is_taken_from_the_data_and_disclosed() -> None:
    view, attacks, remarks = give_size(convolutional_view(), ATTACKS, digits())
    size, sized = len(digits().train), attacks["weight-difference"]
    assert isinstance(sized, WeightDifference)
    assert sized.candidates == round(sized.oversampling * size)
    assert attacks["gate-certificate"] == ATTACKS["gate-certificate"]
    assert "was taken from the training data given" in remarks["weight-difference"]
    assert view.training.training_size == size


def test_a_stated_size_comes_before_that_of_the_data_and_needs_none() -> None:
    _, attacks, remarks = give_size(convolutional_view(training_size=5), {"bilevel": Bilevel()}, None)
    assert attacks["bilevel"] == Bilevel(candidates=5)
    assert "5 was stated" in remarks["bilevel"]
    assert give_size(convolutional_view(), ATTACKS, None).remarks == {}


def test_an_audit_of_a_convolutional_network_tests_something_and_states_what_it_assumed() -> None:
    audited = audit(convolutional_view(), digits(), attacks=[WeightDifference(steps=30)], device="cpu")
    (one,) = audited.assessments
    assert one.applies is Applicability.WITH_CAVEATS
    assert "was taken from the training data given" in one.reasons[0]
    assert audited.evaluations["weight-difference"].given["training"]["training_size"] == len(digits().train)
    assert verdict(audited).sentence


def test_a_budget_that_ends_leaves_a_partial_result_and_an_estimate() -> None:
    attack = WeightDifference(steps=100_000, candidates=8)
    with pytest.raises(OutOfTime):
        attack.run(convolutional_view(), device="cpu", seconds=1e-9)
    found = attack.run(convolutional_view(), device="cpu", seconds=1e-9, keep_partial=True)
    assert len(found) == 8
    assert 0 <= found.diagnostics["stopped_at"] < 1
    assert _describe_end(found).startswith("stopped at 0% when its share of the budget was spent; what")
    half = replace(found, diagnostics={"stopped_at": 0.5, "seconds_needed": 1_700.0})
    assert "stopped at 50%" in _describe_end(half)
    assert "all of it takes about 28 minutes here" in _describe_end(half)
    later = replace(found, diagnostics={"stopped_at": 0.5, "seconds_needed": 1_700.0, "stages_left": 2})
    assert "stopped at 50% of a stage" in _describe_end(later)
    assert "more than 28 minutes" in _describe_end(later)
    assert _describe_end(replace(found, diagnostics={})) == "ran"


def test_a_partial_result_does_not_keep_a_search_from_going_on(tmp_path: Path) -> None:
    attack, checkpoint = WeightDifference(steps=60, candidates=8, midway=0.5), tmp_path / "search.safetensors"
    whole = attack.run(convolutional_view(), device="cpu")
    attack.run(convolutional_view(), device="cpu", seconds=1e-9, checkpoint=checkpoint, keep_partial=True)
    again = attack.run(convolutional_view(), device="cpu", checkpoint=checkpoint)
    assert "stopped_at" not in again.diagnostics
    assert torch.equal(again.inputs, whole.inputs)
