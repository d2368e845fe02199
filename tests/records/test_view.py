"""Views: what they hold and refuse, and the conversion between pixels and network inputs."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from exhume.core.errors import RecordError, WeightsError
from exhume.core.storage import save_bundle
from exhume.records import AttackerView, GradientAt, OptimiserState
from tests.records.made_up import make_network, make_victim


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": {"kind": "MLP", "width": 0}},
        {"architecture": {"kind": "MLP", "width": 3, "colour": "red"}},
        {"architecture": {"kind": "os.system"}},
        {"architecture": ["MLP"]},
        {"input_shape": [1, 2, 3]},
        {"input_shape": 4},
        {"bounds": [0.0]},
        {"bounds": "from 0 to 1"},
        {"bounds": [1.0, 0.0]},
        {"bounds": [0.0, 0.0]},
        {"outputs": 7},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_view_with_settings_that_do_not_fit_is_a_record_error(path: Path, change: dict[str, Any]) -> None:
    make_victim().view().save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()["values"])
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_bundle(path, "view", values | change, held)
    with pytest.raises(RecordError):
        AttackerView.load(path)


def test_the_attacker_holds_no_field_for_training_data() -> None:
    """The view's fields, all of them; a new one must be argued for here."""
    assert {field.name for field in dataclasses.fields(AttackerView)} == {
        "model",
        "final",
        "initial",
        "gradient",
        "more_gradients",
        "optimiser_state",
        "input_shape",
        "bounds",
        "offset",
        "linearised",
        "training",
        "architecture",
    }


def test_a_view_holds_no_result_of_the_training(path: Path) -> None:
    make_victim(result={"secret": "the result of the training"}, dataset="secret name").view().save(path)
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("end", ["initial", "final"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda w: w | {"1.weight": w["1.weight"].clone().fill_(float("nan"))},
            "NaN, infinite or enormous values in 1.weight",
        ),
        (lambda w: w | {"3.bias": w["3.bias"] + float("inf")}, "NaN, infinite or enormous values in 3.bias"),
        (lambda w: w | {"1.weight": w["1.weight"].T}, r"1.weight of shape \(4, 2\), the model \(2, 4\)"),
        (lambda w: {name: w[name] for name in w if name != "3.bias"}, "missing .*3.bias"),
        (lambda w: w | {"5.bias": w["3.bias"]}, "unknown .*5.bias"),
        (lambda w: {}, "missing"),
    ],
    ids=["nan", "infinite", "shape", "missing", "unknown", "empty"],
)
def test_weights_that_no_training_can_produce_are_refused(
    end: str, spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    model = make_network()
    ends = {"initial": model.state_dict(), "final": model.state_dict()}
    ends[end] = spoil(dict(model.state_dict()))
    with pytest.raises(WeightsError, match=message) as caught:
        AttackerView(model=model, input_shape=(1, 2, 2), **ends)
    assert f"The {end} weights" in str(caught.value)


def test_bounds_read_from_a_file_are_checked_and_the_sentence_names_them(path: Path) -> None:
    make_victim().view().save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()["values"])
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_bundle(path, "view", values | {"bounds": [1.0, 0.0]}, held)
    with pytest.raises(RecordError, match=r"the lower one first, not \(1, 0\)"):
        AttackerView.load(path)


def test_a_view_of_a_user_module_is_not_saved(tmp_path: Path) -> None:
    model = make_network()
    with pytest.raises(RecordError, match="cannot be saved"):
        AttackerView(model=model, final=model.state_dict(), input_shape=(1, 2, 2)).save(tmp_path / "view")


def test_pixels_and_model_inputs_are_inverse_and_the_box_is_theirs() -> None:
    view = make_victim(offset=torch.full((1, 1, 1), 0.25)).view()
    pixels = torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(view.to_pixels(view.to_model(pixels)), pixels)
    box = view.model_box()
    assert box is not None
    assert box[0].tolist() == [-0.25] * 4
    assert box[1].tolist() == [0.75] * 4


@pytest.mark.parametrize("evidence", ["gradient", "optimiser_state"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda w: {"1.weight": w["1.weight"] + float("nan")}, "values in 1.weight that are not finite"),
        (lambda w: {"1.weight": w["1.weight"].T}, r"1.weight of shape \(4, 2\), the model \(2, 4\)"),
        (lambda w: w | {"5.bias": w["3.bias"]}, "unknown .*5.bias"),
        (lambda w: {}, "it has no parameter"),
    ],
    ids=["nan", "shape", "unknown", "empty"],
)
def test_gradients_that_no_training_can_produce_are_refused(
    evidence: str, spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    model = make_network()
    spoilt = {evidence: spoil(dict(model.state_dict()))}
    with pytest.raises(WeightsError, match=message):
        AttackerView(model=model, final=model.state_dict(), input_shape=(1, 2, 2), **spoilt)


def test_a_saved_view_keeps_its_gradient_and_its_optimiser_state(path: Path) -> None:
    view = make_victim().view()
    state = OptimiserState(first_moment=view.final, slot="exp_avg", optimiser="Adam", steps=7, lr=1e-3, decay=0.9)
    others = (GradientAt(weights=view.initial, gradient=view.final),)
    held = dataclasses.replace(view, initial=None, gradient=view.final, optimiser_state=state, more_gradients=others)
    held.save(path)
    assert AttackerView.load(path) == held
    assert held.to("cpu") is held


def test_more_gradients_have_the_parameters_of_the_first() -> None:
    view = make_victim().view()
    other = GradientAt(weights=view.final, gradient=view.final)
    with pytest.raises(WeightsError, match="the same parameters"):
        dataclasses.replace(view, more_gradients=(other,))
    broken = GradientAt(weights={}, gradient=view.final)
    with pytest.raises(WeightsError, match="gradient's weights"):
        dataclasses.replace(view, gradient=view.final, more_gradients=(broken,))
