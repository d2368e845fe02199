"""Defences: measured on one network, with enough held-out examples."""

import torch

from exhume.studies.ours.defences import STUDIES, load_data, make_defences
from exhume.studies.study import read_result

SMOKE = STUDIES[0].presets["smoke"]


def test_attacks_are_run_or_refused_on_every_defence(run_smoke):
    folder = run_smoke("defences")
    result = read_result(folder)
    assert (folder / "defences.png").stat().st_size > 1000
    found = result["numbers"]["defences"]
    assert found["none"]["recovered"] > 0
    assert found["none"]["attacks"]["max margin"]["refused"]
    assert "gate certificate" in found["softplus"]["attacks"]
    assert all("accuracy" in one or "Opacus" in one["skipped"] for one in found.values())
    assert "Without a defence" in result["summary"]


def test_held_out_examples_come_from_the_test_set_and_leave_it():
    data = load_data(SMOKE, 0)
    assert len(data.holdout) == SMOKE.size + SMOKE.strangers
    distances = torch.cdist(data.holdout.inputs.flatten(1), data.test.inputs.flatten(1))
    assert distances.min() > 0


def test_every_chosen_defence_exists():
    for settings in STUDIES[0].presets.values():
        assert set(settings.only or ()) <= set(make_defences(settings))
