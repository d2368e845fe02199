"""Victims: equality by value, files, and the view an attacker gets."""

import dataclasses
from pathlib import Path

import pytest

from exhume.core.errors import RecordError
from exhume.core.storage import load_bundle, save_bundle
from exhume.records import Victim
from tests.records.made_up import make_victim


def test_a_changed_weight_makes_another_victim() -> None:
    victim = make_victim()
    changed = {name: tensor + (name == "layer1.bias") for name, tensor in victim.final.items()}
    assert dataclasses.replace(victim, final=changed) != victim
    assert dataclasses.replace(victim, final={n: t.double() for n, t in victim.final.items()}) != victim


@pytest.mark.parametrize("trouble", [float("nan"), object(), {1, 2}], ids=["NaN", "object", "set"])
def test_values_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path: Path, trouble: object) -> None:
    with pytest.raises(RecordError, match="cannot be saved"):
        make_victim(result={"loss": trouble}).save(tmp_path / "victim.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_view_has_the_weights_and_interface_of_its_victim() -> None:
    victim = make_victim(linearised=True, training={"loss": "mse", "seed": 5, "schedule": "fast"})
    view = victim.view()
    for name in ("initial", "final", "input_shape", "bounds", "offset", "linearised", "architecture"):
        assert getattr(view, name) is getattr(victim, name)
    assert view.training.facts() == {"loss": "mse"}


def test_weights_of_another_network_are_refused(path: Path) -> None:
    make_victim().save(path)
    values, tensors = load_bundle(path, "victim")
    save_bundle(path, "victim", values | {"outputs": 3}, tensors)
    with pytest.raises(RecordError, match="final weights"):
        Victim.load(path)
