"""The studies of final weights: presets that fit together, counts with their null, cells that are not repeated."""

import json
from dataclasses import replace

import pytest
import torch

import exhume
from exhume.core.storage import load_bundle, save_bundle
from exhume.records import Outcome, Reconstruction
from exhume.studies import STUDIES
from exhume.studies.buzaglo2023.max_margin import (
    AXES,
    Case,
    Plan,
    attack_of,
    drawn,
    exactly_recovered,
    papers_count,
    relative_ranks,
)

NAMES = ["max-margin", *(f"max-margin-{name}" for name in AXES)]


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_its_presets_and_attacks_that_exist(name):
    study = STUDIES[name]
    assert set(study.presets) == {"smoke", "cpu", "gpu"}
    for preset in study.presets.values():
        plans = [preset] if isinstance(preset, Plan) else preset.plans.values()
        for case in (case for plan in plans for case in plan.cases):
            attack_of(case)


@pytest.mark.parametrize("name", AXES)
def test_every_study_has_bundled_images_at_its_smallest(name):
    for case in AXES[name][2]["smoke"].cases:
        assert len(drawn(case, 0).train) == 10


def test_a_study_leaves_numbers_and_figures_and_repeats_no_cell(tmp_path):
    study = STUDIES["max-margin-loss"]
    found = study.run("smoke", tmp_path, device="cpu")
    result = json.loads((tmp_path / "result.json").read_text())
    assert [row["label"] for row in result["numbers"]["rows"]] == ["mse", "mse, decay"]
    assert all(0 <= row["recovered"] <= row["training_size"] for row in result["numbers"]["rows"])
    assert {path.name for path in tmp_path.glob("*.png")} == {"loss.png", "loss-gallery.png"}
    assert len(found.table[1]) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("cells/**/*.safetensors")}
    study.run("smoke", tmp_path, device="cpu")
    assert len(before) == 2
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_cell_from_before_a_count_joined_is_measured_again_and_no_other(tmp_path):
    study = STUDIES["max-margin-loss"]
    study.run("smoke", tmp_path, device="cpu")
    old, recent = sorted(tmp_path.rglob("cells/**/*.safetensors"))
    values, tensors = load_bundle(old, "cell")
    del values["exact_null"]
    save_bundle(old, "cell", values, tensors)
    written = recent.stat().st_mtime_ns
    study.run("smoke", tmp_path, device="cpu")
    rows = json.loads((tmp_path / "result.json").read_text())["numbers"]["rows"]
    assert [row["exact_null"] for row in rows] == [0, 0]
    assert recent.stat().st_mtime_ns == written


def test_an_oracle_chooses_among_the_same_trials_and_says_so(tmp_path):
    STUDIES["max-margin-choice"].run("smoke", tmp_path, device="cpu")
    ours, oracle = json.loads((tmp_path / "result.json").read_text())["numbers"]["rows"]
    assert (ours["oracle"], oracle["oracle"]) == (False, True)
    assert "oracle" in oracle["label"]
    assert "trials=2" in ours["attack"]
    assert "trials=1" in oracle["attack"]
    assert ours["recovered"] <= oracle["training_size"]


def test_only_what_edges_fix_counts_as_exact():
    data = drawn(Case(label="", source="digits", shrink=1, size=10, strangers=20), seed=0)
    copies = Reconstruction(
        inputs=data.train.inputs + 0.01, certified=torch.zeros(10, dtype=torch.bool), confidence=torch.zeros(10),
        outcome=Outcome.CONVERGED, diagnostics={"edges_met": [9, 8, 7]},
    )  # fmt: skip
    assert exactly_recovered(copies, data.train) == 3
    assert exactly_recovered(copies, data.holdout) == 0
    assert exactly_recovered(replace(copies, diagnostics={}), data.train) == 0


def test_the_papers_count_sees_copies_and_nothing_in_noise():
    data = drawn(Case(label="", source="digits", shrink=1, size=20, strangers=100), seed=0)
    noise = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def found(inputs):
        count = len(inputs)
        return Reconstruction(
            inputs=inputs, certified=torch.zeros(count, dtype=torch.bool), confidence=torch.zeros(count),
            outcome=Outcome.CONVERGED,
        )  # fmt: skip

    similar, null, correlated = papers_count(found(data.train.inputs), data)
    assert (similar, correlated) == (20, 20)
    assert null <= 20
    assert relative_ranks(found(noise), data) == exhume.evaluate(found(noise), data).relative
    similar, _, correlated = papers_count(found(noise), data)
    assert similar <= 2
    assert correlated <= 3


def test_strangers_are_no_training_images():
    case = Case(label="", source="digits", shrink=2, size=20, strangers=60)
    data = drawn(case, seed=1)
    assert data.input_shape == (1, 4, 4)
    assert len(data.holdout) == 60
    assert not bool((torch.cdist(data.train.inputs.flatten(1), data.holdout.inputs.flatten(1)) == 0).any())
    assert torch.equal(drawn(replace(case, strangers=100), seed=1).train.inputs, data.train.inputs)
