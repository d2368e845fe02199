"""Many runs in one program, and few candidates at a time: each is the same as its slow twin."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import GateCertificate, Restarted, WeightDifference
from exhume.attacks.restarts import run_together
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.core.devices import has_fast_bfloat16
from exhume.core.errors import ExhumeError
from exhume.models.mlp import MLP
from exhume.records import Outcome


@pytest.fixture(scope="module")
def views():
    """Three networks of one shape, each trained on eight digits of its own."""
    made = []
    for seed in range(3):
        data = exhume.load("digits", classes="odd-even", size=8, test=0, seed=seed)
        made.append(exhume.train(data, model=MLP(width=64), device="cpu", seed=seed).view())
    return made


EXACT = WeightDifference(steps=60, precision="float64")


def assert_alike(one, other):
    """Equal up to what rounding in another order becomes over the run."""
    torch.testing.assert_close(one.inputs, other.inputs, rtol=0, atol=1e-4)
    torch.testing.assert_close(one.history, other.history, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(one.confidence, other.confidence, rtol=0, atol=1e-4)
    assert (one.outcome, one.diagnostics["steps"]) == (other.outcome, other.diagnostics["steps"])


def test_restarts_together_find_what_they_find_one_by_one(views):
    settings = {"times": 3, "keep": "all"}
    apart = Restarted(EXACT, **settings).run(views[0], device="cpu")
    together = Restarted(EXACT, **settings, at_once=2).run(views[0], device="cpu")
    assert_alike(together, apart)
    assert together.diagnostics["restarts"]["objectives"] == pytest.approx(apart.diagnostics["restarts"]["objectives"])


def test_networks_together_give_what_they_give_one_by_one(views):
    heard = []
    together = run_together(EXACT, views, seeds=[4, 5, 6], device="cpu", progress=lambda *told: heard.append(told[1:3]))
    assert heard[-1] == (60, 60)
    for found, view, seed in zip(together, views, (4, 5, 6), strict=True):
        alone = EXACT.run(view, seed=seed, device="cpu")
        assert_alike(found, alone)
        assert (found.seed, found.attack) == (seed, alone.attack)


def test_few_candidates_at_a_time_find_the_same(views):
    assert_alike(replace(EXACT, at_once=5).run(views[0], device="cpu"), EXACT.run(views[0], device="cpu"))


def test_mixed_precision_ends_where_single_precision_ends(views):
    """On average: where a single search ends hangs on every rounding."""

    def ends(precision):
        attack = WeightDifference(steps=150, precision=precision)
        return [attack.run(views[0], seed=seed, device="cpu") for seed in range(2)]

    mixed, single = ends("mixed"), ends("float32")
    values = [sum(float(end.history[-1]) for end in some) for some in (mixed, single)]
    assert values[0] == pytest.approx(values[1], rel=0.2)
    if not has_fast_bfloat16():  # then there is nothing to round on a CPU
        assert torch.equal(mixed[0].inputs, single[0].inputs)
    assert ("precision" in mixed[0].diagnostics) is not has_fast_bfloat16()
    assert "precision" not in single[0].diagnostics


def test_networks_that_do_not_fit_side_by_side_are_told_what_differs(views):
    data = exhume.load("digits", classes="odd-even", size=8, test=0)
    others = {
        r"layer1.weight is \(64, 64\) in the first and \(128, 64\) in number 3": MLP(width=128),
        r"layer2.weight is \(64, 64\) in the first and \(1, 64\) in number 3": MLP(width=64, depth=1),
        r"layer1.bias is \(64,\) in the first and absent in number 3": MLP(width=64, bias="none"),
    }
    for said, model in others.items():
        odd = exhume.train(data, model=model, device="cpu", steps=20).view()
        with pytest.raises(ExhumeError, match=said):
            run_together(EXACT, [*views[:2], odd], seeds=[0, 1, 2], device="cpu")
    with pytest.raises(ExhumeError, match="all of them are linearised or none is"):
        run_together(EXACT, [views[0], replace(views[1], linearised=True)], seeds=[0, 1], device="cpu")
    with pytest.raises(ExhumeError, match="either all or none may have bounds"):
        run_together(EXACT, [views[0], replace(views[1], bounds=None)], seeds=[0, 1], device="cpu")


def test_what_does_not_fit_side_by_side_is_refused(views):
    data = exhume.load("digits", classes="odd-even", size=6, test=0)
    smaller = exhume.train(data, model=MLP(width=64), device="cpu").view()
    with pytest.raises(ExhumeError, match="of one training set size fit side by side; these have 6 and 8"):
        run_together(EXACT, [views[0], smaller], seeds=[0, 1], device="cpu")
    with pytest.raises(ExhumeError, match="one seed"):
        run_together(EXACT, views, seeds=[0], device="cpu")
    with pytest.raises(ExhumeError, match="GateCertificate cannot attack networks side by side"):
        run_together(GateCertificate(), views[:1], seeds=[0], device="cpu")
    with pytest.raises(ExhumeError, match="at_once should be greater than 0"):
        Restarted(EXACT, at_once=0)
    convnet = exhume.train(data, model=exhume.ConvNet(channels=4, depth=1), device="cpu", steps=20).view()
    attack = Restarted(WeightDifference(steps=5, candidates=4), times=2, at_once=2)
    assert len(attack.run(convnet, device="cpu").diagnostics["restarts"]["objectives"]) == 2, "one by one, then"


def test_restarts_stop_when_everything_is_proven():
    data = exhume.load("digits", classes="odd-even", size=6, test=0)
    view = exhume.train(data, model=MLP(width=512), device="cpu").view()
    found = Restarted(GateCertificate(), times=4, keep="best").run(view, device="cpu")
    assert found.outcome is Outcome.CERTIFIED
    assert len(found.diagnostics["restarts"]["objectives"]) == 1


def test_restarts_without_an_objective_are_not_lost_and_the_one_that_proves_most_is_kept(tmp_path):
    data = exhume.load("digits", classes="odd-even", size=6, test=0)
    view = exhume.train(data, model=MLP(width=24, depth=1), device="cpu").view()
    attack = GateCertificate(rounds=1, starts=1)
    found = Restarted(attack, times=3).run(view, device="cpu", checkpoint=str(tmp_path / "state.safetensors"))
    assert found.outcome is not Outcome.CERTIFIED, "too narrow to prove everything in one try"
    every = Restarted(attack, times=3, keep="all").run(view, device="cpu")
    assert found.diagnostics["restarts"]["objectives"] == [None] * 3
    assert int(found.certified.sum()) >= int(every.certified.sum()) / 3


def test_problems_of_one_network_share_its_weights(views):
    problem = EXACT._plan(views[0]).problems[0]
    together = WeightChange.side_by_side([problem, replace(problem, dual_unit=2.0)])
    assert together.sums is problem.sums
    assert together.target is problem.target
