"""Every study of this part runs from the command line at its smallest, and leaves what it promises."""

import pytest
import torch

from exhume.cli import main
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from exhume.studies import STUDIES
from exhume.studies.ours.defences import advice
from exhume.studies.released import noisy, quantised, rounded
from exhume.studies.study import read_result

NAMES = ("table1", "figure6", "figure7", "figure8", "figure9", "defences")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs_and_leaves_numbers_and_pictures(name, tmp_path):
    command = ["reproduce", name, "--preset", "smoke", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    assert main(command) == 0
    result = read_result(tmp_path / name)
    assert result["numbers"]
    assert result["figures"]
    for figure in result["figures"]:
        assert (tmp_path / name / f"{figure}.png").stat().st_size > 1000
        assert (tmp_path / name / f"{figure}.svg").exists()
    assert result["settings"]
    CHECKS.get(name, lambda result: None)(result)


def test_a_finished_study_is_not_measured_again(tmp_path):
    command = ["reproduce", "figure9", "--preset", "smoke", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    assert main(command) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "figure9" / "cells").rglob("*.safetensors")}
    assert len(before) == 3
    assert main(command) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


def check_table(result):
    found = result["numbers"]["digits"]
    assert found["full data"]["infinite width"]["mean"] > found["random images"]["infinite width"]["mean"]
    assert found["full data"]["copies"] == [60]
    assert found["random images"]["copies"] == [8]
    assert found["KIP"]["copies"] == [0]
    assert "In the paper, on mnist: 89.6 %, 92.8 %, and from 91.5 % to 57.4 %." in result["summary"]


def check_defences(result):
    found = result["numbers"]["defences"]
    assert found["none"]["recovered"] > 0
    assert found["none"]["attacks"]["max margin"]["refused"]
    assert "gate certificate" in found["softplus"]["attacks"]
    assert all("accuracy" in one or "Opacus" in one["skipped"] for one in found.values())
    assert "Without a defence" in result["summary"]


CHECKS = {"table1": check_table, "defences": check_defences}


def test_every_study_has_every_preset():
    for name in NAMES:
        assert set(STUDIES[name].presets) >= {"smoke", "cpu", "gpu"}
        assert STUDIES[name].shows


def view():
    model = MLP(width=8).build((4,), 1, torch.Generator().manual_seed(0))
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, initial=weights, final=weights, input_shape=(4,))


def test_weights_are_released_with_noise_and_in_shorter_formats():
    plain = view()
    weight = plain.final["layer2.weight"]
    blurred = noisy(plain, 0.1, seed=0).final["layer2.weight"]
    assert 0.07 < (blurred - weight).std() < 0.13
    assert torch.equal(noisy(plain, 0.1, seed=0).final["layer2.weight"], blurred)
    half = rounded(plain, torch.bfloat16).final["layer2.weight"]
    assert half.dtype == weight.dtype
    assert torch.equal(half, weight.bfloat16().float())
    whole = quantised(plain).final["layer2.weight"]
    assert len(whole.unique()) <= 255
    assert (whole - weight).abs().max() <= 0.51 * weight.abs().max() / 127
    assert torch.equal(plain.initial["layer2.weight"], quantised(plain).initial["layer2.weight"])


def outcome(accuracy, recovered, certified):
    return {"accuracy": accuracy, "recovered": recovered, "certified": certified}


def test_advice_follows_from_the_numbers():
    results = {
        "none": outcome(95.0, 30, 30),
        "float16": outcome(95.0, 29, 20),
        "Adam": outcome(94.0, 1, 0),
        "DP-SGD ε=8": outcome(70.0, 0, 0),
        "KIP": {"skipped": "not installed"},
    }
    said = advice(results, 30)
    assert "gives away 30 of 30" in said
    assert "float16 (29 recovered, 20 certified)" in said
    assert "Adam keeps most accuracy, 94.0 %" in said
    assert "Only DP-SGD promises" in said
    nothing = advice({"none": outcome(95.0, 30, 30), "float16": outcome(95.0, 29, 20)}, 30)
    assert "Nothing on this bench protects" in nothing
