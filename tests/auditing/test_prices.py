"""Prices of changes before release: measured, or said not to be."""

import time
from dataclasses import dataclass
from typing import final

import pytest

from exhume.attacks import GateCertificate
from exhume.attacks.attack import Attack
from exhume.auditing import price_defences, prices
from exhume.auditing.prices import CHANGES
from exhume.core.run_context import RunContext
from exhume.evaluation import evaluate
from exhume.records import AttackerView, Audit, Reconstruction
from exhume.report.html import page
from tests.auditing.audited_networks import digits, trained


@final
@dataclass(frozen=True, kw_only=True)
class Endless(Attack):
    """Reports for ever."""

    def check(self, view: AttackerView) -> None:
        """Apply to everything."""

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Wait for somebody to stop it."""
        for step in range(10**9):
            context.report("wait", step, 10**9)
            time.sleep(0.001)
        raise AssertionError("unreachable")


def test_a_budget_stops_an_attack_after_every_change_and_nothing_is_claimed_of_it() -> None:
    started = time.monotonic()
    measured = price_defences(trained(), digits(), Endless(), budget=0.6 / 60)
    assert time.monotonic() - started < 10
    assert [price.change for price in measured] == list(CHANGES)
    for price in measured:
        assert (price.certified, price.recovered) == (None, None), "stopped is not the same as safe"
        assert price.accuracy is not None
        assert "part of the budget was spent" in price.note


def test_a_budget_that_suffices_changes_nothing_and_one_of_nothing_runs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prices, "CHANGES", {"as trained": CHANGES["as trained"]})
    free, bounded = (price_defences(trained(), digits(), GateCertificate(), budget=budget) for budget in (None, 5.0))
    assert free == bounded
    assert free[0].certified == 8
    assert all(price.certified is None for price in price_defences(trained(), None, Endless(), budget=0.0))


def test_the_page_shows_what_is_not_known_as_such() -> None:
    found = GateCertificate().run(trained(), seed=1, device="cpu")
    measured = price_defences(trained(), digits(), Endless(), budget=0.0)
    text = page(Audit(evaluations={"gate-certificate": evaluate(found, digits())}, prices=measured))
    assert "part of the budget was spent" in text
    assert ">None<" not in text
    assert "The table below has both sides" not in text
