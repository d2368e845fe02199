"""Audits in one call: what applies runs, the cheapest first, within its budget, and nothing finished is done twice."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import pytest
import torch

import exhume
from exhume.attacks import GateCertificate, WeightDifference
from exhume.attacks.attack import Attack
from exhume.auditing import audit, audit_to_json
from exhume.auditing.kept_results import REQUEST, run_or_reuse
from exhume.auditing.orchestrator import conduct
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.evaluation import Finding, lead, verdict
from exhume.records import Applicability, Assessment, AttackerView, Outcome, Reconstruction
from tests.auditing.audited_networks import digits, trained


@final
@dataclass(frozen=True, kw_only=True)
class Counting(Attack):
    """Counts its runs in a file, which no frozen setting could."""

    tally: str = ""
    patience: int = 0

    def check(self, view: AttackerView) -> None:
        """Apply to everything."""

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Report as often as it was told to, then find noise."""
        with Path(self.tally).open("a") as file:
            file.write("x")
        for step in range(self.patience):
            context.report("count", step, self.patience)
        return Reconstruction(
            inputs=torch.rand(3, *view.input_shape, generator=context.generator),
            certified=torch.zeros(3, dtype=torch.bool),
            confidence=torch.zeros(3),
            outcome=Outcome.CONVERGED,
        )


def test_auto_runs_what_applies_until_everything_is_proven():
    dossier = audit(trained(), digits(), seed=1, budget=0.5)
    fates = {one.attack: one.fate for one in dossier.assessments}
    assert list(dossier.evaluations) == ["gate-certificate"]
    assert fates["gate-certificate"] == "ran"
    assert "proven already" in fates["weight-difference"]
    spoken = verdict(dossier)
    assert spoken.finding is Finding.PROVEN
    assert spoken.sentence.startswith("8 of 8 training images were recovered exactly")


def test_without_data_there_are_counts_and_confidence_and_no_oracle():
    told = audit_to_json(audit(trained(), seed=1, budget=0.5))
    assert told["certified"] == told["training_size_estimate"] == 8
    assert told["curve"] is None
    assert told["p_values"] is None
    assert told["verdict"]["finding"] == "proven"


def test_named_attacks_all_run_and_the_gravest_leads():
    dossier = audit(trained(), digits(), attacks=[WeightDifference(steps=20), GateCertificate()])
    assert list(dossier.evaluations) == ["gate-certificate", "weight-difference"], "the cheapest first"
    assert lead(dossier) == "gate-certificate"
    assert "One other attack ran" in verdict(dossier).detail
    told = audit_to_json(dossier)
    assert told["attacks"]["weight-difference"]["attack"].startswith("WeightDifference(")
    assert told["attack"] == told["attacks"]["gate-certificate"]["attack"]


def test_nothing_applicable_is_no_clean_bill():
    view = replace(trained(), initial=None, final={k: torch.zeros_like(w) for k, w in trained().final.items()})
    dossier = audit(view, digits(), budget=0.0)
    assert not dossier.evaluations
    spoken = verdict(dossier)
    assert spoken.finding is Finding.UNTESTED
    assert "Nothing was tested" in spoken.sentence
    assert audit_to_json(dossier)["lead"] is None


def test_an_attack_that_was_asked_for_and_does_not_apply_is_refused():
    with pytest.raises(Refusal, match="initial weights"):
        audit(replace(trained(), initial=None), attacks=[GateCertificate()])
    with pytest.raises(ExhumeError, match="twice"):
        audit(trained(), attacks=[GateCertificate(), GateCertificate(rounds=3)])


def test_shapes_that_do_not_fit_are_said_before_anything_runs(tmp_path: Path):
    attack = Counting(tally=str(tmp_path / "tally"))
    with pytest.raises(ExhumeError, match="does not take inputs of shape"):
        audit(replace(trained(), input_shape=(1, 9, 9)), attacks=[attack])
    with pytest.raises(ExhumeError, match="examples of shape"):
        audit(trained(), exhume.load("faces", size=4), attacks=[attack])
    assert not (tmp_path / "tally").exists()


def test_the_budget_stops_long_work_and_says_so(tmp_path: Path):
    endless = Counting(tally=str(tmp_path / "tally"), patience=10**9)
    dossier = audit(trained(), digits(), attacks=[endless], budget=1e-3)
    assert not dossier.evaluations
    assert "budget" in dossier.assessments[0].fate
    assert "within the budget" in verdict(dossier).sentence


def test_what_was_found_is_not_searched_for_again(tmp_path: Path):
    attack = Counting(tally=str(tmp_path / "tally"))
    first = audit(trained(), digits(), attacks=[attack], seed=5, folder=tmp_path / "audit")
    second = audit(trained(), digits(), attacks=[attack], seed=5, folder=tmp_path / "audit")
    assert (tmp_path / "tally").read_text() == "x"
    assert first.evaluations["counting"] == second.evaluations["counting"]
    audit(trained(), digits(), attacks=[attack], seed=6, folder=tmp_path / "audit")
    assert (tmp_path / "tally").read_text() == "xx"
    other = replace(trained(), final={name: weight + 1e-3 for name, weight in trained().final.items()})
    audit(other, digits(), attacks=[attack], seed=6, folder=tmp_path / "audit")
    assert (tmp_path / "tally").read_text() == "xxx"


def test_an_attack_that_breaks_costs_nothing_that_others_find_unless_it_was_asked_for(tmp_path: Path):
    attacks = {
        "broken": Counting(tally=str(tmp_path / "no" / "folder")),
        "counting": Counting(tally=str(tmp_path / "tally")),
    }

    def run(name: str, attack: Attack, seconds: float) -> Reconstruction:
        return attack.run(trained(), seed=0, device="cpu")

    found, assessments = conduct(trained(), attacks, run, is_auto=True, budget=None)
    assert list(found) == ["counting"]
    fates = {one.attack: one.fate for one in assessments}
    assert fates["broken"].startswith("ended by an error (FileNotFoundError: ")
    assert fates["counting"] == "ran"
    with pytest.raises(FileNotFoundError):
        conduct(trained(), attacks, run, is_auto=False, budget=None)


def test_an_attack_with_caveats_leaves_half_of_the_budget_to_those_that_wait(monkeypatch: pytest.MonkeyPatch):
    caveats = Applicability.WITH_CAVEATS
    planned = tuple(Assessment(attack=name, applies=caveats, reasons=()) for name in ("first", "last"))
    monkeypatch.setattr("exhume.auditing.orchestrator.assess", lambda view, attacks: planned)
    given: dict[bool, list[float]] = {True: [], False: []}
    for is_auto, seconds_given in given.items():

        def run(name: str, attack: Attack, seconds: float, told: list[float] = seconds_given) -> Reconstruction:
            told.append(seconds)
            return attack.run(trained(), seed=0, device="cpu")

        attacks = {name: WeightDifference(steps=1) for name in ("first", "last")}
        conduct(trained(), attacks, run, is_auto=is_auto, budget=60.0)
    assert given[True] == [pytest.approx(1800, abs=60), pytest.approx(3600, abs=60)]
    assert given[False] == [pytest.approx(3600, abs=60), pytest.approx(3600, abs=60)]


def test_what_was_found_costs_nothing_when_the_budget_is_spent(tmp_path: Path):
    attack = Counting(tally=str(tmp_path / "tally"))
    audit(trained(), digits(), attacks=[attack], folder=tmp_path / "audit")
    again = audit(trained(), digits(), attacks=[GateCertificate(), attack], budget=0.0, folder=tmp_path / "audit")
    assert list(again.evaluations) == ["counting"]
    assert {one.attack: one.fate for one in again.assessments} == {
        "gate-certificate": "not run: the budget was spent",
        "counting": "ran",
    }
    assert (tmp_path / "tally").read_text() == "x"


@pytest.mark.parametrize("damage", ["cut the result", "drop the word", "spoil the word"])
def test_a_result_that_is_not_whole_is_not_believed(damage: str, tmp_path: Path):
    attack, file = Counting(tally=str(tmp_path / "tally")), tmp_path / "reconstruction.safetensors"
    whole = run_or_reuse(attack, trained(), file=file, seed=1)
    word = tmp_path / REQUEST
    if damage == "cut the result":
        file.write_bytes(file.read_bytes()[:-40])
    elif damage == "drop the word":
        word.unlink()
    else:
        word.write_text("[1")
    again = run_or_reuse(attack, trained(), file=file, seed=1)
    assert (tmp_path / "tally").read_text() == "xx"
    assert torch.equal(again.inputs, whole.inputs)


def test_frozen_features_are_compared_as_the_head_sees_them():
    data = digits()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 100), torch.nn.Tanh(), torch.nn.Linear(100, 256), torch.nn.ReLU(),
            torch.nn.Linear(256, 2),
        )  # fmt: skip
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    steps = torch.optim.SGD([*model[3].parameters(), *model[5].parameters()], 0.1)
    for _ in range(150):
        steps.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(data.train.inputs), data.train.labels))
        steps.step()
    view = AttackerView(model=model, initial=initial, final=model.state_dict(), input_shape=(1, 8, 8))
    dossier = audit(view, data, attacks=[GateCertificate()])
    audited = dossier.evaluations["gate-certificate"]
    assert audited.train is not None
    assert audited.train.examples.shape == (8, 100)
    assert audited.dataset is not None
    assert "as layer 3 sees it" in audited.dataset
    assert audited.train.good > audited.holdout.good  # type: ignore[union-attr]
    assert 0 <= audited.network["test_accuracy"] <= 1


def test_the_public_names_do_it_all(tmp_path: Path):
    dossier = exhume.audit(trained(), digits(), seed=1, budget=0.5, folder=tmp_path)
    exhume.report(dossier, tmp_path / "report.html")
    assert exhume.verdict(dossier).sentence in (tmp_path / "report.html").read_text()
