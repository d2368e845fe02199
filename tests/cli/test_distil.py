"""``exhume distil``: what it leaves, what it says, and that it continues."""

import json

import pytest
import torch

from exhume import Dataset, Victim, load
from exhume.cli import main

COMMAND = ["distil", "--data", "digits", "--classes", "odd-even", "--size", "20", "--steps", "60", "--device", "cpu"]


def test_a_distilled_set_is_saved_with_its_figure_and_copies(tmp_path, capsys):
    assert main([*COMMAND, "--distilled", "8", "--noise", "0.1", "--out", str(tmp_path)]) == 0
    made = Dataset.load(tmp_path / "data.safetensors")
    assert made.train.inputs.shape == (8, 1, 8, 8)
    assert {"distilled.png", "distilled.svg", "distilled.json"} <= {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "checkpoints").exists()
    assert "training examples lie nearer" in capsys.readouterr().out


def test_the_result_is_printed_as_json(tmp_path, capsys):
    kip = ["--method", "kip", "--distilled", "4", "--coordinates", "span"]
    assert main([*COMMAND, *kip, "--json", "--out", str(tmp_path)]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account == json.loads((tmp_path / "distilled.json").read_text())
    assert account["copies"]["copied_examples"] == 0
    assert account["method"].startswith("KIP(size=4")


def test_the_same_command_makes_the_same_set(tmp_path):
    for place in ("a", "b"):
        assert main([*COMMAND, "--distilled", "4", "--quiet", "--out", str(tmp_path / place)]) == 0
    first, second = (Dataset.load(tmp_path / place / "data.safetensors") for place in ("a", "b"))
    assert first == second
    assert torch.equal(first.holdout.inputs, load("digits", classes="odd-even", size=20).holdout.inputs)


def test_the_data_of_a_network_are_not_replaced(tmp_path, capsys):
    train = ["train", "--data", "digits", "--classes", "odd-even", "--size", "4", "--steps", "2", "--width", "8"]
    assert main([*train, "--quiet", "--out", str(tmp_path / "run")]) == 0
    before = (tmp_path / "run" / "data.safetensors").read_bytes()
    distil = [*COMMAND, "--distilled", "4", "--quiet", "--out"]
    assert main([*distil, str(tmp_path / "run")]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "run" / "data.safetensors").read_bytes() == before
    own = str(tmp_path / "own")
    for command in ([*distil, own], ["train", "--data", own, "--width", "8", "--steps", "2", "--quiet", "--out", own]):
        assert main(command) == main(command) == 0, "a set may lie beside the network that it trained"


def test_a_set_can_be_distilled_by_reconstruction(tmp_path):
    command = [*COMMAND, "--method", "rkip-finite", "--width", "64", "--distilled", "4", "--out", str(tmp_path)]
    assert main(command) == 0
    assert Dataset.load(tmp_path / "data.safetensors").train.targets.shape == (4, 1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--noise", "1.5"], "noise should be less than 1"),
        (["--method", "rkip-finite", "--noise", "0.1"], "rkip-finite takes neither"),
        (["--min-distance", "-1"], "min_distance should be"),
        (["--coordinates", "span", "--noise", "0.1"], "leave the span"),
    ],
)
def test_bad_settings_are_refused_with_one_sentence(wrong, sentence, tmp_path, capsys):
    assert main([*COMMAND, *wrong, "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err


def test_a_table_is_distilled_without_a_figure(tmp_path):
    command = ["distil", "--data", "breast-cancer", "--size", "40", "--steps", "30", "--distilled", "6"]
    assert main([*command, "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert not (tmp_path / "distilled.png").exists()


def test_a_network_trains_on_a_distilled_set(tmp_path, capsys):
    assert main([*COMMAND, "--distilled", "6", "--quiet", "--out", str(tmp_path / "made")]) == 0
    run = tmp_path / "run"
    train = ["train", "--width", "32", "--steps", "200", "--device", "cpu", "--quiet"]
    assert main([*train, "--data", str(tmp_path / "made"), "--out", str(run)]) == 0
    assert Dataset.load(run / "data.safetensors") == Dataset.load(tmp_path / "made" / "data.safetensors")
    same = ["--data", str(tmp_path / "made" / "data.safetensors"), "--out", str(tmp_path / "again")]
    assert main([*train, *same]) == 0
    first, second = (Victim.load(place / "victim.safetensors").final for place in (run, tmp_path / "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    capsys.readouterr()
    assert main([*train, *same, "--size", "4", "--overwrite"]) == 2
    assert "drawn already; omit size" in capsys.readouterr().err


def test_a_network_trains_on_learned_labels(tmp_path):
    made = [*COMMAND, "--distilled", "4", "--labels", "learned", "--quiet", "--out", str(tmp_path / "made")]
    assert main(made) == 0
    train = ["train", "--data", str(tmp_path / "made"), "--width", "64", "--device", "cpu", "--quiet"]
    assert main([*train, "--out", str(tmp_path / "run")]) == 0
    data = Dataset.load(tmp_path / "made" / "data.safetensors")
    victim = Victim.load(tmp_path / "run" / "victim.safetensors")
    said = victim.view().module(victim.final)(data.to_model(data.train.inputs))
    assert torch.allclose(said, data.train.targets, atol=0.05)
