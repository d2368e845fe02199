"""Results of attacks in run folders: nothing finished runs twice, and nothing incomplete is used."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.attacks import WeightDifference
from exhume.auditing import audit
from exhume.auditing.kept_results import is_result_of, request_digest, run_or_reuse
from exhume.auditing.observer import SilentObserver
from exhume.auditing.run_folder import RunFolder
from exhume.core.run_context import OutOfTime
from exhume.records import AttackerView, Reconstruction
from tests.auditing.audited_networks import Counting, digits, trained


def run(folder: Path, attack: Counting, seconds: float = 60.0) -> Reconstruction:
    return run_or_reuse(
        "counting", attack, trained(), folder=RunFolder(folder), seed=1, device="cpu", observer=SilentObserver(),
        seconds=seconds,
    )  # fmt: skip


def test_an_attack_runs_again_only_when_attack_seed_or_network_changed(tmp_path: Path) -> None:
    attack, tally = Counting(tally=str(tmp_path / "tally")), tmp_path / "tally"
    first = audit(trained(), digits(), attacks=[attack], seed=5, folder=tmp_path / "audit")
    second = audit(trained(), digits(), attacks=[attack], seed=5, folder=tmp_path / "audit")
    assert tally.read_text() == "x"
    assert first.evaluations["counting"] == second.evaluations["counting"]
    audit(trained(), digits(), attacks=[attack], seed=6, folder=tmp_path / "audit")
    assert tally.read_text() == "xx"
    other = replace(trained(), final={name: weight + 1e-3 for name, weight in trained().final.items()})
    audit(other, digits(), attacks=[attack], seed=6, folder=tmp_path / "audit")
    assert tally.read_text() == "xxx"
    audit(other, digits(), attacks=[replace(attack, reports=1)], seed=6, folder=tmp_path / "audit")
    assert tally.read_text() == "xxxx"


@pytest.mark.parametrize("damage", ["truncated result", "no request", "damaged request"])
def test_an_incomplete_result_is_not_used(damage: str, tmp_path: Path) -> None:
    attack, folder = Counting(tally=str(tmp_path / "tally")), RunFolder(tmp_path)
    whole = run(tmp_path, attack)
    if damage == "truncated result":
        folder.reconstruction.write_bytes(folder.reconstruction.read_bytes()[:-40])
    elif damage == "no request":
        folder.request.unlink()
    else:
        folder.request.write_text("[1")
    again = run(tmp_path, attack)
    assert (tmp_path / "tally").read_text() == "xx"
    assert torch.equal(again.inputs, whole.inputs)


def test_a_command_killed_before_its_last_file_writes_it_without_running_again(tmp_path: Path) -> None:
    attack, folder = Counting(tally=str(tmp_path / "tally")), RunFolder(tmp_path)
    run(tmp_path, attack)
    folder.result.unlink()
    run(tmp_path, attack, seconds=0.0)
    assert folder.result.is_file()
    assert (tmp_path / "tally").read_text() == "x"


def test_without_time_nothing_runs_and_no_folder_is_left(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        run(tmp_path / "out", Counting(tally=str(tmp_path / "tally")), seconds=0.0)
    assert not list(tmp_path.iterdir())


def test_a_result_knows_its_network_whatever_the_settings(tmp_path: Path) -> None:
    run(tmp_path, Counting(tally=str(tmp_path / "tally")))
    assert is_result_of(RunFolder(tmp_path), trained())
    assert not is_result_of(RunFolder(tmp_path), replace(trained(), initial=None))
    assert not is_result_of(RunFolder(tmp_path / "nowhere"), trained())


def test_every_fact_that_decides_a_result_changes_the_digest() -> None:
    view = trained()
    half = {name: weight.bfloat16() for name, weight in view.final.items()}
    views = [
        view, replace(view, initial=None), replace(view, bounds=None), replace(view, offset=torch.zeros(1, 1, 1)),
        replace(view, linearised=True), replace(view, training={"loss": "ce"}), replace(view, final=half),
    ]  # fmt: skip
    digests = [request_digest("Attack()", one, 0) for one in views]
    digests += [request_digest("Attack()", view, 1), request_digest("Other()", view, 0)]
    assert len(set(digests)) == len(digests)
    assert request_digest("Attack()", view, 0) == digests[0]


def test_unfinished_work_on_other_weights_is_discarded_with_a_note(tmp_path: Path) -> None:
    notes: list[str] = []

    class Listening(SilentObserver):
        def note(self, sentence: str) -> None:
            notes.append(sentence)

    def attack(view: AttackerView, seconds: float) -> Reconstruction:
        return run_or_reuse(
            "weight-difference", WeightDifference(steps=40, candidates=4), view, folder=RunFolder(tmp_path), seed=0,
            device="cpu", observer=Listening(), seconds=seconds,
        )  # fmt: skip

    with pytest.raises(OutOfTime):
        attack(trained(), 1e-9)
    assert list(tmp_path.rglob("weight-difference*.safetensors"))
    other = replace(trained(), final={name: weight + 1e-3 for name, weight in trained().final.items()})
    assert len(attack(other, 600.0)) == 4
    assert [note.startswith("Discarded") for note in notes] == [True]
    assert not (tmp_path / "checkpoints").exists()
