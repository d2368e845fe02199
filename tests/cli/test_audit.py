"""``exhume audit`` on the user's own network: files, unknown initial weights, exit codes for pipelines."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exhume
from exhume.auditing.prices import CHANGES
from exhume.cli import main
from tests.cli.commands import as_json

NETWORK = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))

def seeded(seed=0):
    torch.manual_seed(3 * seed + 1)
    return network()

def smooth():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 2))
"""
SEED = 41


@pytest.fixture(scope="module")
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an owner would have it, written by plain PyTorch and NumPy."""
    folder = tmp_path_factory.mktemp("own_files")
    (folder / "models.py").write_text(NETWORK)
    data = exhume.load("digits", classes="odd-even", size=10, centre=False)
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    save_file(network.state_dict(), folder / "initial.safetensors")
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(network(data.train.inputs), data.train.labels))
        optimiser.step()
    wrapped = {f"_orig_mod.module.{name}": weight for name, weight in network.state_dict().items()}
    torch.save({"model_state_dict": wrapped, "epoch": 200}, folder / "final.pt")
    np.savez(folder / "train.npz", x=data.train.inputs.numpy(), y=data.train.labels.numpy())
    np.savez(folder / "holdout.npz", x=data.holdout.inputs.numpy(), y=data.holdout.labels.numpy())
    return folder


def audit(
    own_files: Path, out: Path, *others: str, model: str = "network", start: str | None = "initial.safetensors"
) -> int:
    # Attacks that are chosen automatically could take minutes.
    bounded = [] if any("--attacks" in other or "--budget" in other for other in others) else ["--budget=0.2"]
    initial = [] if start is None else [f"--initial={start if ':' in start else own_files / start}"]
    return main(
        [
            "audit", f"--model={own_files / 'models.py'}:{model}", *initial, f"--final={own_files / 'final.pt'}",
            "--input-shape=1,8,8", f"--out={out}", "--quiet", *others, *bounded,
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for audits of the same weights, where the attack itself runs once and is found afterwards."""
    return tmp_path_factory.mktemp("shared")


def written(out: Path) -> Any:
    return json.loads((out / "audit.json").read_text())


def with_data(own_files: Path) -> list[str]:
    return [f"--train-data={own_files / 'train.npz'}", f"--holdout={own_files / 'holdout.npz'}"]


def test_npz_files_are_compared_with_every_recovery(own_files: Path, shared: Path) -> None:
    assert audit(own_files, shared, *with_data(own_files)) == 0
    values = written(shared)
    assert values["certified_exact"] == values["training_size"] == values["training_size_estimate"] == 10
    assert values["false_certificates"] == 0
    assert values["holdout_size"] == 10
    assert values["train_accuracy"] == 1.0
    assert values["start"]["tried"] == 1
    assert values["notes"]["command"].startswith("exhume audit --model=")
    assert {one["attack"] for one in values["applicability"]} >= {"gate-certificate", "weight-difference"}
    page = (shared / "report.html").read_text()
    assert "exhume audit --model=" in page
    assert (shared / "figures" / "gallery.png").is_file()


def test_training_data_without_a_hold_out_set_is_possible(own_files: Path, shared: Path) -> None:
    assert audit(own_files, shared, with_data(own_files)[0]) == 0
    values = written(shared)
    assert (values["certified_exact"], values["holdout_size"], values["p_values"]) == (10, 0, None)


def test_a_hidden_seed_is_found(own_files: Path, shared: Path) -> None:
    assert audit(own_files, shared, *with_data(own_files), start="seed:0-99") == 0
    values = written(shared)
    assert values["start"]["candidates"][0]["name"] == f"seed {SEED}"
    assert values["certified_exact"] == 10
    assert f"seed {SEED} fits the final weights best" in (shared / "report.html").read_text()


def test_a_factory_that_takes_a_seed_receives_each_seed(own_files: Path, tmp_path: Path, capsys) -> None:
    start = "seed:0-9"  # three times 40/3 is no whole number: this factory never built the network
    assert audit(own_files, tmp_path, start=start, model="seeded") == 2
    assert "None of the 10 candidates for the initial weights stands out" in capsys.readouterr().err
    assert not (tmp_path / "audit.json").exists()


def test_the_final_weights_alone_are_attacked_by_what_applies_or_reported_as_untested(
    own_files: Path, tmp_path: Path
) -> None:
    status = audit(own_files, tmp_path, "--budget=0", start=None)
    values = written(tmp_path)
    assert status == 3
    assert values["verdict"]["finding"] == "untested"
    reasons = {one["attack"]: one for one in values["applicability"]}
    assert "initial weights" in reasons["gate-certificate"]["reasons"][0]
    assert "Nothing was tested" in (tmp_path / "report.html").read_text()


def test_where_nothing_was_tested_a_note_names_the_options_to_use(
    own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = [f"--final={own_files / 'final.pt'}", "--input-shape=1,8,8", "--budget=0"]
    assert main(["audit", f"--model={own_files / 'models.py'}:network", *weights, f"--out={tmp_path}"]) == 3
    assert "--set weight-difference.candidates=60" in capsys.readouterr().err


def test_an_audit_keeps_results_about_the_same_network_only(own_files: Path, tmp_path: Path) -> None:
    quick = ["--set=weight-difference.steps=20"]
    assert audit(own_files, tmp_path, "--attacks=weight-difference", *quick) == 0
    kept = (tmp_path / "weight-difference" / "reconstruction.safetensors").read_bytes()
    assert audit(own_files, tmp_path, "--attacks=gate-certificate") == 0
    assert (tmp_path / "weight-difference" / "reconstruction.safetensors").read_bytes() == kept
    assert audit(own_files, tmp_path, "--budget=0", *quick) == 0
    assert written(tmp_path)["attacks"].keys() == {"gate-certificate"}, "proven: the other is not needed"
    assert audit(own_files, tmp_path, "--attacks=gate-certificate,weight-difference", "--budget=0", *quick) == 0
    assert written(tmp_path)["attacks"].keys() == {"gate-certificate", "weight-difference"}, "both found, none run"
    assert audit(own_files, tmp_path, "--budget=0", start=None) == 3
    assert not list(tmp_path.glob("*/reconstruction.safetensors")), "about a network whose start was known"


def test_public_facts_of_the_training_are_reported(own_files: Path, tmp_path: Path) -> None:
    facts = ("optimiser=sgd", "augmentation=flips", "loss=CE")
    assert audit(own_files, tmp_path, *(f"--trained-with={fact}" for fact in facts)) == 0
    values = written(tmp_path)
    assert values["threat_model"]["training"] == {"optimiser": "sgd", "augmentation": "flips", "loss": "ce"}
    assert "altered copies" in " ".join(values["applicability"][0]["reasons"])


def test_pipelines_get_exit_codes_and_junit(own_files: Path, shared: Path, tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    log = tmp_path / "audit.sarif"
    assert audit(own_files, shared, "--fail-if=certified>0", f"--junit={report}", f"--sarif={log}") == 1
    assert json.loads(log.read_text())["runs"][0]["results"][0]["ruleId"] == "condition"
    assert ElementTree.parse(report).getroot()[0].get("failures") == "1"
    assert audit(own_files, shared, "--fail-if=certified>10", f"--junit={report}") == 0
    assert ElementTree.parse(report).getroot()[0].get("failures") == "0"
    assert (shared / "report.html").is_file()


def test_conditions_that_need_data_are_refused_before_any_attack_runs(
    own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for condition in ("good>0", "recovered_at_fpr.0.01>=3"):
        assert audit(own_files, tmp_path / "out", f"--fail-if={condition}") == 2
        assert "give the data" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_evidence_for_clear_initial_weights_is_a_bound(own_files: Path, shared: Path, capsys) -> None:
    start = own_files / "initial.safetensors"
    options = [f"--initial={start}", f"--final={own_files / 'final.pt'}", "--input-shape=1,8,8", "--budget=0"]
    main(["audit", f"--model={own_files / 'models.py'}:network", *options, f"--out={shared}"])
    assert "(p < 1e-300)" in capsys.readouterr().err
    assert "below 1e-300" in (shared / "report.html").read_text()


def test_the_report_has_the_prices_of_defences(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = ("as trained", "rounded to 8 bits per tensor")
    monkeypatch.setattr("exhume.auditing.prices.CHANGES", {name: CHANGES[name] for name in some})
    quick = ["--set=gate-certificate.rounds=3", "--set=gate-certificate.patience=2"]
    assert audit(own_files, tmp_path, *with_data(own_files), "--defences", "--budget=5", *quick) == 0
    prices = {price["change"]: price for price in written(tmp_path)["prices"]}
    assert prices["as trained"]["certified"] == prices["as trained"]["recovered"] == 10
    assert prices["rounded to 8 bits per tensor"]["certified"] == 0
    assert all(abs(price["accuracy"] - prices["as trained"]["accuracy"]) < 0.3 for price in prices.values())
    assert "measured on this network" in (tmp_path / "report.html").read_text()


def test_prices_of_defences_keep_to_the_budget(own_files: Path, shared: Path) -> None:
    assert audit(own_files, shared, "--attacks=gate-certificate") == 0
    assert audit(own_files, shared, "--attacks=gate-certificate", "--defences", "--budget=0") == 0
    values = written(shared)
    assert values["certified"] == 10, "found before, and so within any budget"
    known, *others = values["prices"]
    assert (known["change"], known["certified"]) == ("as trained", 10)
    assert {price["certified"] for price in others} == {None}
    assert all("budget was spent" in price["note"] for price in others)


@pytest.mark.parametrize(
    ("others", "word"),
    [
        (["--fail-if=certified"], "NAME>NUMBER"),
        (["--attacks=auto,gate-certificate"], "not both"),
        (["--attacks=gate-certifikate"], "did you mean gate-certificate"),
        (["--set=gate-certificate.stepz=3"], "no setting"),
        (["--set=nonsense=3"], "nonsense"),
        (["--holdout=holdout.npz"], "name both"),
        (["--train-data=nowhere.npz"], "no file"),
        (["--bounds=0,0.5", "--train-data=train.npz"], "outside the bounds"),
        (["--bounds=1,0"], "lowest and the highest"),
        (["--bounds=0,inf"], "two finite numbers"),
        (["--trained-with=sgd"], "NAME=VALUE"),
        (["--trained-with=loss=foo"], "takes mse, huber, bce or ce for loss, not 'foo'"),
        (["--initial=seed:9-1"], "seed:0-9999"),
        (["--initial=seed:1-99999999999"], "more seeds"),
        (["--initial=seed:1", "--initial=b.pt"], "not both"),
        (["--budget=-1"], "budget"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    others: list[str], word: str, own_files: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_files)
    start = None if any("--initial" in other for other in others) else "initial.safetensors"
    assert audit(own_files, tmp_path / "out", *others, start=start) == 2
    said = capsys.readouterr()
    assert word in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("exhume:")]) == 1
    assert not (tmp_path / "out").exists()


def test_names_of_attacks_may_be_separated_by_commas(own_files: Path, tmp_path: Path) -> None:
    names = "--attacks=gate-certificate,weight-difference"
    assert audit(own_files, tmp_path, names, "--set=weight-difference.steps=5") == 0
    assert set(written(tmp_path)["attacks"]) == {"gate-certificate", "weight-difference"}


def test_without_a_flat_side_another_attack_applies(own_files: Path, tmp_path: Path) -> None:
    status = audit(own_files, tmp_path, "--set=weight-difference.steps=5", "--budget=0.02", model="smooth")
    values = written(tmp_path)
    assert "flat side" in values["applicability"][0]["reasons"][0]
    assert status in (0, 3)


def test_each_of_several_attacks_has_its_folder(
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


def test_the_verdict_is_printed(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(trained), "--attack=gate-certificate", f"--out={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "can prove each" in said
    assert "held out" in said
    assert str(tmp_path / "report.html") in said
