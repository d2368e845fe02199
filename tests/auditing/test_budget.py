"""Budgets of time."""

import math
import time

import pytest

from exhume.auditing.budget import AUTO_MINUTES, Budget, default_minutes


def test_a_budget_runs_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    budget = Budget.start(2.0)
    assert budget.seconds_left() == 120.0
    now = 230.0
    assert budget.seconds_left() == -10.0


def test_no_limit() -> None:
    assert Budget.start(None).seconds_left() == Budget.start(math.inf).seconds_left() == math.inf


def test_only_attacks_that_were_not_requested_have_a_default_limit() -> None:
    assert default_minutes(is_auto=True) == AUTO_MINUTES
    assert default_minutes(is_auto=False) is None
