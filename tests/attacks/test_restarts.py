"""Many runs in one program, and few candidates at a time: each is the same as its slow twin."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import GateCertificate, Restarted, WeightDifference
from exhume.attacks.restarts import run_together
from exhume.core.devices import has_fast_bfloat16
from exhume.core.errors import ExhumeError
from exhume.models.mlp import MLP
from exhume.records import Outcome
from tests.attacks.victims import train_mlp


@pytest.fixture(scope="module")
def views():
    """Three networks of one shape, each trained on its own eight digits."""
    return [train_mlp(size=8, width=64, seed=seed)[1] for seed in range(3)]


EXACT = WeightDifference(steps=30, precision="float64")


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
    reports = []
    together = run_together(
        EXACT, views, seeds=[4, 5, 6], device="cpu", progress=lambda *report: reports.append(report[1:3])
    )
    assert reports[-1] == (30, 30)
    for found, view, seed in zip(together, views, (4, 5, 6), strict=True):
        alone = EXACT.run(view, seed=seed, device="cpu")
        assert_alike(found, alone)
        assert (found.seed, found.attack) == (seed, alone.attack)


def test_few_candidates_at_a_time_find_the_same(views):
    assert_alike(replace(EXACT, at_once=5).run(views[0], device="cpu"), EXACT.run(views[0], device="cpu"))


def test_mixed_precision_ends_where_single_precision_ends(views):
    """On average: the end of a single search depends on every rounding."""

    def ends(precision):
        attack = WeightDifference(steps=60, precision=precision)
        return [attack.run(views[0], seed=seed, device="cpu") for seed in range(2)]

    mixed, single = ends("mixed"), ends("float32")
    values = [sum(float(end.history[-1]) for end in some) for some in (mixed, single)]
    assert values[0] == pytest.approx(values[1], rel=0.2)
    if not has_fast_bfloat16():  # then there is nothing to round on a CPU
        assert torch.equal(mixed[0].inputs, single[0].inputs)
    assert ("precision" in mixed[0].diagnostics) is not has_fast_bfloat16()
    assert "precision" not in single[0].diagnostics


def test_refusals_say_in_what_networks_side_by_side_differ(views):
    data = exhume.load("digits", classes="odd-even", size=8, test=0)
    others = {
        r"layer1.weight is \(64, 64\) in the first and \(128, 64\) in number 3": MLP(width=128),
        r"layer2.weight is \(64, 64\) in the first and \(1, 64\) in number 3": MLP(width=64, depth=1),
        r"layer1.bias is \(64,\) in the first and absent in number 3": MLP(width=64, bias="none"),
    }
    for message, model in others.items():
        odd = exhume.train(data, model=model, device="cpu", steps=20).view()
        with pytest.raises(ExhumeError, match=message):
            run_together(EXACT, [*views[:2], odd], seeds=[0, 1, 2], device="cpu")
    with pytest.raises(ExhumeError, match="all of them are linearised or none is"):
        run_together(EXACT, [views[0], replace(views[1], linearised=True)], seeds=[0, 1], device="cpu")
    with pytest.raises(ExhumeError, match="either all or none may have bounds"):
        run_together(EXACT, [views[0], replace(views[1], bounds=None)], seeds=[0, 1], device="cpu")


def test_work_that_does_not_fit_side_by_side_is_refused(views):
    data, smaller = train_mlp(size=6, width=64)
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
    assert len(attack.run(convnet, device="cpu").diagnostics["restarts"]["objectives"]) == 2, "they run one by one"


def test_restarts_stop_when_everything_is_proven():
    _, view = train_mlp(size=4, width=256)
    found = Restarted(GateCertificate(), times=4, keep="best").run(view, device="cpu")
    assert found.outcome is Outcome.CERTIFIED
    assert len(found.diagnostics["restarts"]["objectives"]) == 1


def test_restarts_without_an_objective_are_kept_by_how_much_they_prove(tmp_path):
    _, view = train_mlp(size=6, width=24, depth=1)
    attack = GateCertificate(rounds=1, starts=1)
    found = Restarted(attack, times=3).run(view, device="cpu", checkpoint=str(tmp_path / "state.safetensors"))
    assert found.outcome is not Outcome.CERTIFIED, "too narrow to prove everything in one try"
    every = Restarted(attack, times=3, keep="all").run(view, device="cpu")
    assert found.diagnostics["restarts"]["objectives"] == [None] * 3
    assert int(found.certified.sum()) >= int(every.certified.sum()) / 3
