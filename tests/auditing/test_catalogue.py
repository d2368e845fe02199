"""Attacks by name and cost."""

from dataclasses import dataclass

import pytest

from exhume import attacks
from exhume.attacks import GateCertificate, WeightDifference
from exhume.attacks.attack import Attack
from exhume.auditing.catalogue import CATALOGUE, attack_name, by_cost, dashed, known_attacks


def test_names_are_dashed_class_names() -> None:
    assert attack_name(GateCertificate) == "gate-certificate"
    assert dashed("MaxMargin") == "max-margin"
    assert all(attack_name(kind) == name for name, kind in known_attacks().items())


def test_every_entry_is_a_known_attack_and_costs_order_the_names() -> None:
    assert CATALOGUE.keys() <= known_attacks().keys()
    costs = [CATALOGUE[name].cost for name in by_cost() if name in CATALOGUE]
    assert costs == sorted(costs)
    assert set(by_cost()) == set(known_attacks())


def test_an_exported_attack_joins_last_unless_it_needs_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    newcomer = type("Newcomer", (WeightDifference,), {})

    @dataclass(frozen=True, kw_only=True)
    class Wrapper(Attack):
        attack: Attack

    monkeypatch.setattr(attacks, "__all__", [*attacks.__all__, "Newcomer", "Wrapper"])
    monkeypatch.setattr(attacks, "Newcomer", newcomer, raising=False)
    monkeypatch.setattr(attacks, "Wrapper", Wrapper, raising=False)
    assert by_cost()[-1] == "newcomer"
    assert "wrapper" not in known_attacks()
