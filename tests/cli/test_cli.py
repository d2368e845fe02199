"""The command line when all is well: from data to verdict, for people and for machines."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exhume
from exhume.cli import main

AUDIT_KEYS = {
    "schema_version", "dataset", "attack", "candidates", "training_size", "curve", "holdout_curve", "ssim",
    "recovered_at_fpr", "seconds", "certified", "false_certificates", "training_size_estimate",
}  # fmt: skip
TRAIN = ["train", "--data=digits", "--classes=odd-even", "--size=12", "--width=256", "--depth=1", "--stop-loss=1e-4"]
NETWORK = """
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    assert main([*TRAIN, f"--out={folder}", "--quiet"]) == 0
    return folder


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_training_writes_a_run(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} >= {"data.safetensors", "victim.safetensors", "training.json"}
    assert not (trained / "checkpoints").exists()
    victim, data = (
        exhume.Victim.load(trained / "victim.safetensors"),
        exhume.Dataset.load(trained / "data.safetensors"),
    )
    assert data == exhume.load("digits", classes="odd-even", size=12)
    again = exhume.train(data, model=victim.architecture, **victim.training)
    assert all((again.final[name] == weight).all() for name, weight in victim.final.items())


def test_the_same_training_is_not_done_twice(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "victim.safetensors").stat().st_mtime_ns
    account = as_json(capsys, *TRAIN, f"--out={trained}")
    assert account == json.loads((trained / "training.json").read_text())
    assert (trained / "victim.safetensors").stat().st_mtime_ns == before


def test_overwrite_replaces_the_network_and_what_was_found_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [*TRAIN, f"--out={tmp_path}", "--quiet"]
    assert main(first) == 0
    assert main(["attack", str(tmp_path), "--quiet"]) == 0
    assert main(["audit", str(tmp_path), "--attack=weight-difference", "--set=steps=5", "--quiet"]) == 0
    assert main([*first, "--size=10", "--overwrite"]) == 0
    assert not list(tmp_path.rglob("result.json"))
    assert not list(tmp_path.rglob("reconstruction.safetensors")), "nor what an audit found"
    assert len(exhume.Dataset.load(tmp_path / "data.safetensors").train) == 10


def test_attack_then_evaluate_is_audit(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = as_json(capsys, "attack", trained, "--attack=gate-certificate", "--seed=3")
    assert result["certified"] > 0
    assert result["curve"] is None, "an attack knows no data"
    assert json.loads((trained / "result.json").read_text()) == result
    evaluated = as_json(capsys, "evaluate", trained, "--seed=3", "--device=cpu")
    audited = as_json(capsys, "audit", trained, "--attack=gate-certificate", "--seed=3", f"--out={tmp_path / 'audit'}")
    assert audited.keys() >= AUDIT_KEYS
    assert evaluated["verdict"] == audited["verdict"]
    for findings in (evaluated, audited):
        for apart in ("seconds", "applicability", "notes", "attacks"):
            findings.pop(apart)
    assert evaluated == audited
    for folder in (trained, tmp_path / "audit"):
        assert (folder / "report.html").read_text().startswith("<!doctype html>")
        figures = {path.name for path in (folder / "figures").iterdir()}
        assert figures >= {"gallery.png", "gallery.svg", "curve.png", "curve.svg"}
        assert not list(folder.rglob(".*")), "no temporary file is left"
    assert not (tmp_path / "audit" / "data.safetensors").exists()


def test_a_new_attack_removes_the_old_verdict(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("audit.json", "report.html", "figures/curve.png"):
        (tmp_path / name).write_text("of another attack")
    assert main(["attack", str(trained), "--quiet", f"--out={tmp_path}"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "reconstruction.safetensors",
        "request.json",
        "result.json",
    }


def test_restarts_keep_the_best_of_several_starts(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ("attack", trained, "--attack=weight-difference", "--set=steps=20", f"--out={tmp_path}")
    assert "Restarted(" in as_json(capsys, *search, "--restarts=3")["attack"]
    assert (
        len(exhume.Reconstruction.load(tmp_path / "reconstruction.safetensors").diagnostics["restarts"]["objectives"])
        == 3
    )
    assert main([*map(str, search), "--restarts=0"]) == 2
    assert set(as_json(capsys, "evaluate", tmp_path, f"--data={trained}")["attacks"]) == {"weight-difference"}


def test_several_attacks_each_in_their_folder(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = as_json(
        capsys, "audit", trained, "--attack=gate-certificate", "--attack=weight-difference",
        "--set=weight-difference.steps=20", f"--out={tmp_path}",
    )["attacks"]  # fmt: skip
    assert set(results) == {"gate-certificate", "weight-difference"}
    assert "steps=20" in results["weight-difference"]["attack"]
    assert json.loads((tmp_path / "audit.json").read_text())["attacks"] == results
    for name in results:
        assert (tmp_path / name / "reconstruction.safetensors").is_file()
    assert (tmp_path / "figures" / "weight-difference" / "curve.svg").is_file()
    again = as_json(capsys, "evaluate", tmp_path, f"--data={trained}")["attacks"]
    assert {name: result["curve"] for name, result in again.items()} == {
        name: result["curve"] for name, result in results.items()
    }


def test_what_lies_in_the_folder_itself_is_kept_beside_a_sub_folder_of_the_same_attack(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["--attack=weight-difference", f"--out={tmp_path}"]
    assert main(["attack", str(trained), *one, "--set=steps=5", "--quiet"]) == 0
    assert main(["audit", str(trained), *one, "--set=steps=9", "--quiet"]) == 0
    told = as_json(capsys, "evaluate", tmp_path, f"--data={trained}")["attacks"]
    assert set(told) == {"weight-difference", "weight-difference-in-run-folder"}
    assert "steps=9" in told["weight-difference"]["attack"]
    assert "steps=5" in told["weight-difference-in-run-folder"]["attack"]
    assert "weight-difference-in-run-folder" in (tmp_path / "report.html").read_text()


def test_people_read_the_verdict(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(trained), "--attack=gate-certificate", f"--out={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "each with a proof" in said
    assert "held out" in said
    assert str(tmp_path / "report.html") in said


def test_quiet_says_nothing(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["attack", str(trained), f"--out={tmp_path}", "--quiet"]) == 0
    assert main(["evaluate", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_convnet_falls_to_the_attack_that_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "--data=digits", "--size=10", "--architecture=convnet", "--channels=4", "--stop-loss=0.01"]
    assert main([*train, f"--out={tmp_path}", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["attack", str(tmp_path), "--set=candidates=20", "--set=steps=5"]) == 0
    said = capsys.readouterr()
    assert "gate-certificate does not apply" in said.err
    assert "WeightDifference" in said.out


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network that a plain PyTorch loop trained, as its owner would have it."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "their_models.py").write_text(NETWORK)
    data = exhume.load("digits", classes="odd-even", size=12, centre=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    save_file(network.state_dict(), folder / "initial.safetensors")
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(network(data.train.inputs), data.train.labels))
        optimiser.step()
    torch.save({"state_dict": network.state_dict(), "epoch": 200}, folder / "final.pt")
    data.save(folder / "data.safetensors")
    return folder


@pytest.mark.parametrize("module", ["their_models", "their_models.py"])
def test_own_weights(
    module: str, stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stranger)
    weights = ["--initial=initial.safetensors", "--final=final.pt"]
    own = ["audit", f"--model={module}:network", *weights, "--input-shape=1,8,8", f"--out={tmp_path}"]
    own += ["--attack=gate-certificate"]
    blind = as_json(capsys, *own)
    assert blind["certified"] > 0
    assert blind["false_certificates"] is None
    checked = as_json(capsys, *own, "--data=data.safetensors", "--bounds=0,1")
    assert checked["certified"] == blind["certified"]
    assert checked["false_certificates"] == 0
    assert checked["threat_model"]["training inputs"] is False


def test_data_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = as_json(capsys, "data", "list", f"--out={tmp_path}")
    assert {"digits", "faces", "mnist"} <= {source["name"] for source in listed["sources"]}
    assert json.loads((tmp_path / "sources.json").read_text()) == listed
    shown = as_json(capsys, "data", "show", "faces", "--size=10", f"--out={tmp_path}")
    assert shown["classes"]["face"] == {"train": 5, "holdout": 5, "test": 90}
    assert exhume.Dataset.load(tmp_path / "data.safetensors") == exhume.load("faces", size=10)
    assert main(["data", "list"]) == 0
    assert "bundled" in capsys.readouterr().out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"exhume {exhume.__version__}\n"
    for command in (["--help"], ["train", "--help"], ["attack", "--help"], ["data", "fetch", "--help"]):
        assert main(command) == 0
        assert "Usage" in capsys.readouterr().out


def test_the_installed_command_gives_exit_codes() -> None:
    command = Path(sys.executable).parent / "exhume"
    done = subprocess.run([command, "data", "show", "nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("exhume: There is no source 'nowhere'")


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.cli.demo.FACES", 20)  # half as many as there are, in a tenth of the time
    audit = as_json(capsys, "demo", f"--out={tmp_path}")
    assert audit.keys() >= AUDIT_KEYS
    assert audit == json.loads((tmp_path / "audit.json").read_text())
    assert audit["training_size"] == audit["training_size_estimate"] == 20
    # Some faces are nearly one picture; what they leave undetermined in others stays without a certificate.
    assert audit["exact"] >= 19
    assert audit["certified_examples"] >= 15
    assert audit["false_certificates"] == 0
    assert "GateCertificate" in audit["attack"]
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "figures" / "gallery.png").is_file()
