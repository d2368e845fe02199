"""Prices of changes before release: measured, or stated to be unknown."""

import time

import pytest

from exhume.attacks import GateCertificate
from exhume.auditing import price_defences
from exhume.auditing.prices import CHANGES
from exhume.evaluation import evaluate
from exhume.records import Audit
from exhume.records.audit import STATE_DROPPED
from exhume.report.html import render_page
from tests.attacks.gates.evidence_victims import state_view
from tests.attacks.gates.victims import draw
from tests.auditing.audited_networks import Clock, Counting, certified, digits, trained


def test_a_budget_stops_the_attack_after_every_change_and_nothing_is_claimed(tmp_path, monkeypatch) -> None:
    endless = Counting(tally=str(tmp_path / "tally"), reports=10**9)
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", Clock())
        prices = price_defences(trained(), digits(), endless, budget=2.0)
    assert (tmp_path / "tally").read_text() == "x" * len(CHANGES), "every change gets its share"
    assert [price.change for price in prices] == list(CHANGES)
    for price in prices:
        assert (price.certified, price.recovered) == (None, None), "stopped is not the same as safe"
        assert price.accuracy is not None
        assert "share of the budget was spent" in price.note


def test_the_unchanged_network_costs_what_the_audit_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.auditing.prices.CHANGES", {"as trained": CHANGES["as trained"]})
    free, bounded = (
        price_defences(trained(), digits(), GateCertificate(), seed=1, budget=budget) for budget in (None, 600.0)
    )
    assert free == bounded
    assert free[0].certified == int(certified().certified.sum())


def test_a_budget_of_zero_runs_nothing(tmp_path) -> None:
    prices = price_defences(trained(), None, Counting(tally=str(tmp_path / "tally")), budget=0.0)
    assert all((price.certified, price.accuracy) == (None, None) for price in prices)
    assert not (tmp_path / "tally").exists()


def test_the_report_shows_unknown_prices(tmp_path) -> None:
    prices = price_defences(trained(), digits(), Counting(tally=str(tmp_path / "tally")), budget=0.0)
    text = render_page(Audit(evaluations={"gate-certificate": evaluate(certified(), digits())}, prices=prices))
    assert "share of the budget was spent" in text
    assert ">None<" not in text
    assert "The table below shows cost and effect" not in text


def test_dropping_the_optimisers_state_is_priced_where_the_attacker_holds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.auditing.prices.CHANGES", {"as trained": CHANGES["as trained"]})
    data = draw(size=12)
    kept, dropped = price_defences(state_view(data, optimiser="AdamW"), data, GateCertificate(), seed=0)
    assert kept.certified >= 9
    assert (dropped.change, dropped.certified) == (STATE_DROPPED, 0)
    assert "no optimiser state" in dropped.note
