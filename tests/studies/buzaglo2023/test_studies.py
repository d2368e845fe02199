"""The studies of final weights: presets that fit together, counts with their null, cells measured once."""

import json

import pytest

from exhume.core.storage import load_bundle, save_bundle
from exhume.studies import STUDIES
from exhume.studies.buzaglo2023 import cases
from exhume.studies.buzaglo2023.cases import Plan, train_case
from exhume.studies.buzaglo2023.studies import AXES
from exhume.studies.study import StudyRun

NAMES = ["max-margin", *(f"max-margin-{name}" for name in AXES)]


@pytest.mark.parametrize("name", NAMES)
def test_every_case_of_every_preset_has_an_attack(name):
    study = STUDIES[name]
    assert set(study.presets) == {"smoke", "cpu", "gpu"}
    for preset in study.presets.values():
        plans = [preset] if isinstance(preset, Plan) else preset.plans.values()
        for case in (case for plan in plans for case in plan.cases):
            case.build_attack()


@pytest.mark.parametrize("name", AXES)
def test_every_smoke_case_uses_bundled_images(name):
    for case in AXES[name][1]["smoke"].cases:
        assert len(case.draw(0).train) == 10


def test_a_study_writes_figures_and_measures_cells_once(tmp_path):
    study = STUDIES["max-margin-loss"]
    found = study.run("smoke", tmp_path, device="cpu")
    rows = json.loads((tmp_path / "result.json").read_text())["numbers"]["rows"]
    assert [row["label"] for row in rows] == ["mse", "mse, decay"]
    assert all(0 <= row["recovered"] <= row["training_size"] for row in rows)
    assert {path.name for path in tmp_path.glob("*.png")} == {"loss.png", "loss-gallery.png"}
    assert len(found.table[1]) == 2

    # A cell of an older version lacks a count: it alone is measured again.
    old, recent = sorted(tmp_path.rglob("cells/found-*.safetensors"))
    values, tensors = load_bundle(old, "cell")
    del values["exact_null"]
    save_bundle(old, "cell", values, tensors)
    written = recent.stat().st_mtime_ns
    study.run("smoke", tmp_path, device="cpu")
    rows = json.loads((tmp_path / "result.json").read_text())["numbers"]["rows"]
    assert [row["exact_null"] for row in rows] == [0, 0]
    assert recent.stat().st_mtime_ns == written
    assert load_bundle(old, "cell")[0]["exact_null"] == 0


def test_cases_that_share_a_network_train_it_once(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(cases, "train_case", lambda case, *rest: trained.append(case) or train_case(case, *rest))
    plan = AXES["control"][1]["smoke"]
    run = StudyRun(folder=tmp_path, device="cpu")
    rows = cases.measure_plans({"control": plan, "again": plan}, run)
    assert len(trained) == 1
    blind, search = rows["control"]
    assert blind["attack"] != search["attack"] == rows["again"][1]["attack"]
    assert blind["kkt_residual"] == search["kkt_residual"]


def test_an_oracle_chooses_among_the_same_trials_and_is_labelled(tmp_path):
    STUDIES["max-margin-choice"].run("smoke", tmp_path, device="cpu")
    ours, oracle = json.loads((tmp_path / "result.json").read_text())["numbers"]["rows"]
    assert (ours["oracle"], oracle["oracle"]) == (False, True)
    assert "oracle" in oracle["label"]
    assert "trials=2" in ours["attack"]
    assert "trials=1" in oracle["attack"]
    assert 0 <= oracle["recovered"] <= oracle["training_size"]
