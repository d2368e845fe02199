"""Audits: what applies runs, the cheapest first, within its budget."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import exhume
from exhume.attacks import GateCertificate, WeightDifference
from exhume.attacks.attack import Attack
from exhume.auditing import audit, audit_to_json
from exhume.auditing.budget import Budget
from exhume.auditing.orchestrator import run_attacks
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import OutOfTime
from exhume.evaluation import Finding, lead, verdict
from exhume.records import Applicability, Assessment, Reconstruction
from exhume.records.audit import FAILED
from tests.auditing.audited_networks import Clock, Counting, digits, proven_audit, trained


def test_an_automatic_audit_runs_what_applies_until_everything_is_proven() -> None:
    audited = proven_audit()
    fates = {one.attack: one.fate for one in audited.assessments}
    assert list(audited.evaluations) == ["gate-certificate"]
    assert fates["gate-certificate"] == "ran"
    assert "proven already" in fates["weight-difference"]
    assert verdict(audited).finding is Finding.PROVEN
    assert verdict(audited).sentence.startswith("All 8 training images were recovered exactly")


def test_without_data_there_are_counts_and_confidence_but_no_comparison() -> None:
    values = audit_to_json(audit(trained(), seed=1))
    assert values["certified"] == values["training_size_estimate"] == 8
    assert values["curve"] is None
    assert values["p_values"] is None
    assert values["verdict"]["finding"] == "proven"


def test_named_attacks_all_run_and_the_gravest_leads() -> None:
    audited = audit(trained(), digits(), attacks=[WeightDifference(steps=20), GateCertificate()])
    assert list(audited.evaluations) == ["gate-certificate", "weight-difference"], "the cheapest first"
    assert lead(audited) == "gate-certificate"
    assert "One other attack ran" in verdict(audited).detail
    values = audit_to_json(audited)
    assert values["attacks"]["weight-difference"]["attack"].startswith("WeightDifference(")
    assert values["attack"] == values["attacks"]["gate-certificate"]["attack"]


def test_an_audit_where_nothing_applies_is_untested() -> None:
    view = replace(trained(), initial=None, final={k: torch.zeros_like(w) for k, w in trained().final.items()})
    audited = audit(view, digits(), budget=0.0)
    assert not audited.evaluations
    assert verdict(audited).finding is Finding.UNTESTED
    assert "Nothing was tested" in verdict(audited).sentence
    assert audit_to_json(audited)["lead"] is None
    failed = Assessment(attack="broken", applies=Applicability.APPLIES, fate=f"{FAILED} (ValueError: so)")
    assert "broken ended by an error" in verdict(replace(audited, assessments=(failed,))).sentence


def test_a_named_attack_that_does_not_apply_is_refused() -> None:
    with pytest.raises(Refusal, match="initial weights"):
        audit(replace(trained(), initial=None), attacks=[GateCertificate()])
    with pytest.raises(ExhumeError, match="twice"):
        audit(trained(), attacks=[GateCertificate(), GateCertificate(rounds=3)])


def test_shapes_that_do_not_fit_are_refused_before_anything_runs(tmp_path: Path) -> None:
    attack = Counting(tally=str(tmp_path / "tally"))
    with pytest.raises(ExhumeError, match="does not take inputs of shape"):
        audit(replace(trained(), input_shape=(1, 9, 9)), attacks=[attack])
    with pytest.raises(ExhumeError, match="training examples have shape"):
        audit(trained(), exhume.load("faces", size=4), attacks=[attack])
    assert not (tmp_path / "tally").exists()


def test_a_budget_stops_named_attacks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Counting(tally=str(tmp_path / "tally"), reports=10**9)
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", Clock())
        audited = audit(trained(), digits(), attacks=[endless], budget=0.1)
    assert not audited.evaluations
    assert "stopped when its share of the budget was spent" in audited.assessments[0].fate
    assert "within the budget" in verdict(audited).sentence


def seconds_given(monkeypatch: pytest.MonkeyPatch, *, is_auto: bool, budget: Budget) -> list[float]:
    """Return the seconds allotted to each of two attacks with caveats that take no time."""
    planned = tuple(Assessment(attack=name, applies=Applicability.WITH_CAVEATS) for name in ("first", "last"))
    given: list[float] = []

    def run_one(name: str, attack: Attack, seconds: float) -> Reconstruction:
        given.append(seconds)
        raise OutOfTime

    with monkeypatch.context() as patched:
        patched.setattr("exhume.auditing.orchestrator.assess", lambda view, attacks: planned)
        patched.setattr(time, "monotonic", lambda: 0.0)
        attacks = {name: WeightDifference(steps=1) for name in ("first", "last")}
        run_attacks(trained(), attacks, run_one, is_auto=is_auto, budget=budget)
    return given


def test_an_attack_with_caveats_leaves_half_of_the_budget_to_the_attacks_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hour = Budget(deadline=3600.0)
    assert seconds_given(monkeypatch, is_auto=True, budget=hour) == [1800.0, 3600.0]
    assert seconds_given(monkeypatch, is_auto=False, budget=hour) == [3600.0, 3600.0]


def test_kept_results_take_no_time_when_the_budget_is_spent(tmp_path: Path) -> None:
    attack = Counting(tally=str(tmp_path / "tally"))
    audit(trained(), digits(), attacks=[attack], folder=tmp_path / "audit")
    again = audit(trained(), digits(), attacks=[GateCertificate(), attack], budget=0.0, folder=tmp_path / "audit")
    assert list(again.evaluations) == ["counting"]
    assert {one.attack: one.fate for one in again.assessments} == {
        "gate-certificate": "not run: the budget was spent",
        "counting": "ran",
    }
    assert (tmp_path / "tally").read_text() == "x"


def test_a_bug_in_an_attack_stops_the_audit_only_if_the_attack_was_requested(tmp_path: Path) -> None:
    attacks = {
        "broken": Counting(tally=str(tmp_path / "no" / "folder")),
        "counting": Counting(tally=str(tmp_path / "tally")),
    }

    def run_one(name: str, attack: Attack, seconds: float) -> Reconstruction:
        return attack.run(trained(), seed=0, device="cpu")

    found, assessments = run_attacks(trained(), attacks, run_one, is_auto=True, budget=Budget())
    assert list(found) == ["counting"]
    fates = {one.attack: one.fate for one in assessments}
    assert fates["broken"].startswith("ended by an error (FileNotFoundError: ")
    assert fates["counting"] == "ran"
    with pytest.raises(FileNotFoundError):
        run_attacks(trained(), attacks, run_one, is_auto=False, budget=Budget())


def test_prices_of_defences_are_part_of_the_audit_on_request() -> None:
    attack = GateCertificate()
    priced = audit(trained(), attacks=[attack], seed=1, with_prices=True, budget=0.0)
    assert priced.prices == (), "nothing ran, so there is no attack to repeat"
    assert proven_audit().prices == ()


def test_an_audit_makes_a_report(tmp_path: Path) -> None:
    exhume.report(proven_audit(), tmp_path / "report.html")
    assert exhume.verdict(proven_audit()).sentence in (tmp_path / "report.html").read_text()
