"""Records: what is saved comes back equal, and what is not a record is refused in one way only."""

import contextlib
import dataclasses
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from exhume.core.errors import ExhumeError, RecordError, WeightsError
from exhume.core.storage import save_bundle
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, Outcome, Reconstruction, Split, Victim, count_outputs

# The run-time shape checker samples containers with the random module, also within strategies.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module")
quick = settings(max_examples=50)
floating = st.sampled_from([torch.float16, torch.float32, torch.float64])
awkward = st.text(max_size=20) | st.sampled_from(["", "\0", "a/b", "\ud800", "‮ × −", '"}{', "None", "kind"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | awkward,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(awkward, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(awkward, json_values, max_size=3)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
bounds = st.none() | st.tuples(st.floats(-10, 0), st.floats(1, 10))


@st.composite
def tensors(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype, finite: bool = False) -> Tensor:
    """Random values, laid out in memory this way or that, with the awkward ones among them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    values = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if values.numel() and not finite:
        special = draw(st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 6e-8, 65504.0]))
        values.view(-1)[draw(st.integers(0, values.numel() - 1))] = special
    return values.mT.contiguous().mT if values.ndim >= 2 and draw(st.booleans()) else values


@st.composite
def splits(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype, outputs: int) -> Split:
    count = draw(st.integers(0, 4))
    return Split(
        inputs=draw(tensors((count, *shape), dtype)),
        labels=torch.arange(count) % 2,
        targets=draw(st.none() | tensors((count, outputs), dtype)),
    )


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    shape, dtype, outputs = draw(shapes), draw(floating), draw(st.integers(1, 3))
    split = splits(shape, dtype, outputs)
    return Dataset(
        name=draw(awkward),
        train=draw(split),
        holdout=draw(split),
        test=draw(st.none() | split),
        classes=tuple(draw(st.lists(awkward, max_size=4))),
        bounds=draw(bounds),
        offset=draw(st.none() | tensors(shape, dtype)),
        features=draw(st.none() | st.lists(awkward, max_size=3).map(tuple)),
    )


@st.composite
def victims(draw: st.DrawFn) -> Victim:
    architecture = MLP(
        width=draw(st.integers(1, 4)),
        depth=draw(st.integers(0, 2)),
        bias=draw(st.sampled_from(["all", "first", "none"])),
        parameterisation=draw(st.sampled_from(["standard", "ntk"])),
    )
    input_shape, outputs, dtype = draw(shapes.filter(len)), draw(st.integers(1, 3)), draw(floating)
    empty = architecture.build(input_shape, outputs).state_dict()
    initial, final = (
        {name: draw(tensors(tuple(tensor.shape), dtype, finite=True)) for name, tensor in empty.items()}
        for _ in range(2)
    )
    return Victim(
        architecture=architecture,
        initial=initial,
        final=final,
        input_shape=input_shape,
        outputs=outputs,
        bounds=draw(bounds),
        offset=draw(st.none() | tensors(input_shape, dtype)),
        linearised=draw(st.booleans()),
        dataset=draw(awkward),
        training=draw(json_objects),
        result=draw(json_objects),
    )


@st.composite
def reconstructions(draw: st.DrawFn) -> Reconstruction:
    count, shape, dtype = draw(st.integers(0, 4)), draw(shapes), draw(floating)
    return Reconstruction(
        inputs=draw(tensors((count, *shape), dtype)),
        certified=torch.arange(count) % 2 == 0,
        confidence=draw(tensors((count,), dtype)),
        duals=draw(st.none() | tensors((count, 2), dtype)),
        p_values=draw(st.none() | tensors((count,), torch.float64)),
        outcome=draw(st.sampled_from(Outcome)),
        message=draw(awkward),
        history=draw(st.none() | tensors((3,), dtype)),
        diagnostics=draw(json_objects),
        attack=draw(awkward),
        seed=draw(st.integers()),
        seconds=draw(st.floats(0, 1e9)),
    )


RECORDS: dict[str, tuple[st.SearchStrategy[Any], type[Any]]] = {
    "dataset": (datasets(), Dataset),
    "victim": (victims(), Victim),
    "view": (victims().map(Victim.view), AttackerView),
    "start unknown": (victims().map(lambda victim: dataclasses.replace(victim.view(), initial=None)), AttackerView),
    "reconstruction": (reconstructions(), Reconstruction),
}
every_record = pytest.mark.parametrize("kind", RECORDS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records") / "record.safetensors"


@every_record
@quick
@given(data=st.data())
def test_what_is_saved_comes_back_equal(kind: str, path: Path, data: st.DataObject) -> None:
    strategy, record_type = RECORDS[kind]
    record = data.draw(strategy)
    record.save(path)
    loaded = record_type.load(path)
    assert loaded == record
    record.save(path)  # over an existing file
    assert record_type.load(path) == loaded


@every_record
@quick
@given(data=st.data())
def test_a_damaged_file_is_a_record_or_a_record_error(kind: str, path: Path, data: st.DataObject) -> None:
    strategy, record_type = RECORDS[kind]
    data.draw(strategy).save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
        path.write_bytes(content)
        with pytest.raises(RecordError):
            record_type.load(path)
        return
    for position in data.draw(st.lists(st.integers(0, min(len(content), 2_000) - 1), min_size=1, max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(RecordError):
        record_type.load(path)


@every_record
@quick
@given(data=st.data())
def test_a_file_with_a_part_missing_is_a_record_error(kind: str, path: Path, data: st.DataObject) -> None:
    """Take one required value or tensor away, or put nonsense in its place, as a hand-edited file might."""
    strategy, record_type = RECORDS[kind]
    data.draw(strategy).save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        header = file.metadata()
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    values = json.loads(header["values"])
    optional = {"offset", "duals", "p_values", "history", "message", "diagnostics", "attack", "seed", "seconds"}
    groups = {"test", "initial"} - ({"initial"} if kind == "victim" else set())
    required = sorted(
        name
        for name in [*values, *held]
        if name not in optional | {"linearised", "training", "result"}
        and name.partition("/")[0] not in groups
        and not name.endswith("/targets")
    )
    name = data.draw(st.sampled_from(required))
    values.pop(name, None)
    held.pop(name, None)
    save_bundle(path, header["kind"], values, held)
    with pytest.raises(RecordError):
        record_type.load(path)


@quick
@given(content=st.binary(max_size=300))
def test_any_bytes_are_a_record_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for _, record_type in RECORDS.values():
        with pytest.raises(RecordError):
            record_type.load(path)


class Trap:
    """Unpickling this would fail the test in a way nobody can catch."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return pytest.exit, ("a record was unpickled",)


@every_record
@pytest.mark.parametrize("disguise", ["pickle", "checkpoint"])
def test_a_pickle_posing_as_a_record_is_never_opened(kind: str, disguise: str, path: Path) -> None:
    if disguise == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    else:
        buffer = io.BytesIO()
        torch.save({"weights": Trap()}, buffer)
        path.write_bytes(buffer.getvalue())
    with pytest.raises(RecordError, match="not a safetensors file"):
        RECORDS[kind][1].load(path)


@every_record
def test_a_record_of_another_kind_is_refused(kind: str, path: Path) -> None:
    save_bundle(path, "something else", {}, {"w": torch.ones(1)})
    with pytest.raises(RecordError, match="is not a saved"):
        RECORDS[kind][1].load(path)
    with pytest.raises(RecordError, match="There is no"):
        RECORDS[kind][1].load(path.parent / "nothing")


def test_values_nested_without_end_are_a_record_error(path: Path) -> None:
    header = {"format": "exhume-1", "kind": "dataset", "values": "[" * 200_000}
    path.write_bytes(safetensors.torch.save({"w": torch.ones(1)}, metadata=header))
    with pytest.raises(RecordError):
        Dataset.load(path)


def small_victim(**changes: Any) -> Victim:
    architecture = MLP(width=3, depth=1)
    weights = architecture.build((1, 2, 2), 1).state_dict()
    fields: dict[str, Any] = {
        "architecture": architecture,
        "initial": weights,
        "final": weights,
        "input_shape": (1, 2, 2),
        "outputs": 1,
        "bounds": (0.0, 1.0),
        "dataset": "made up",
    }
    return Victim(**fields | changes)


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
    small_victim().view().save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()["values"])
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_bundle(path, "view", values | change, held)
    with pytest.raises(RecordError):
        AttackerView.load(path)


def test_reconstructions_with_parts_of_different_lengths_do_not_exist(path: Path) -> None:
    values = {"outcome": "converged"}
    parts = {"inputs": torch.zeros(3, 2), "certified": torch.zeros(3).bool(), "confidence": torch.zeros(2)}
    save_bundle(path, "reconstruction", values, parts)
    with pytest.raises(RecordError, match="3 inputs but 2 confidence"):
        Reconstruction.load(path)
    save_bundle(path, "reconstruction", values | {"inputs": [1, 2]}, parts | {"confidence": torch.zeros(3)})
    with pytest.raises(RecordError, match="inputs"):
        Reconstruction.load(path)


def test_data_sets_with_parts_of_different_lengths_do_not_exist(path: Path) -> None:
    values = {"name": "made up", "classes": ["a", "b"], "bounds": None, "features": None}
    good = {"train/inputs": torch.zeros(3, 2), "train/labels": torch.zeros(3).long()}
    parts = good | {"holdout/inputs": torch.zeros(3, 2), "holdout/labels": torch.zeros(2).long()}
    save_bundle(path, "dataset", values, parts)
    with pytest.raises(RecordError, match="3 inputs but 2 labels"):
        Dataset.load(path)
    save_bundle(path, "dataset", values, good)
    with pytest.raises(RecordError, match="inputs"):
        Dataset.load(path)


@pytest.mark.parametrize("trouble", [float("nan"), object(), {1, 2}], ids=["NaN", "object", "set"])
def test_what_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path, trouble: object) -> None:
    with pytest.raises(RecordError, match="cannot be saved"):
        small_victim(result={"loss": trouble}).save(tmp_path / "victim.safetensors")
    assert not list(tmp_path.iterdir())


@every_record
@settings(max_examples=3)
@given(data=st.data())
def test_records_are_frozen_and_compare_by_value_alone(kind: str, data: st.DataObject) -> None:
    record = data.draw(RECORDS[kind][0])
    for field in dataclasses.fields(record):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, field.name, None)
    with pytest.raises(TypeError):
        hash(record)
    assert record == dataclasses.replace(record)
    assert record != "something else"


def test_a_changed_weight_makes_another_victim() -> None:
    victim = small_victim()
    changed = {name: tensor + (name == "layer1.bias") for name, tensor in victim.final.items()}
    assert dataclasses.replace(victim, final=changed) != victim
    assert dataclasses.replace(victim, final={n: t.double() for n, t in victim.final.items()}) != victim


def test_the_attacker_holds_no_field_for_training_data() -> None:
    """The view's fields, all of them; a new one must be argued for here."""
    assert {field.name for field in dataclasses.fields(AttackerView)} == {
        "model",
        "final",
        "initial",
        "input_shape",
        "bounds",
        "offset",
        "linearised",
        "training",
        "architecture",
    }


def test_a_view_says_nothing_of_how_the_training_went(path: Path) -> None:
    small_victim(result={"secret": "the result of the training"}, dataset="secret name").view().save(path)
    assert b"secret" not in path.read_bytes()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1))


@pytest.mark.parametrize("end", ["initial", "final"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda w: w | {"1.weight": w["1.weight"].clone().fill_(float("nan"))}, "NaN or infinite values in 1.weight"),
        (lambda w: w | {"3.bias": w["3.bias"] + float("inf")}, "NaN or infinite values in 3.bias"),
        (lambda w: w | {"1.weight": w["1.weight"].T}, r"1.weight of shape \(4, 2\), the model \(2, 4\)"),
        (lambda w: {name: w[name] for name in w if name != "3.bias"}, "missing .*3.bias"),
        (lambda w: w | {"5.bias": w["3.bias"]}, "unknown .*5.bias"),
        (lambda w: {}, "missing"),
    ],
    ids=["nan", "infinite", "shape", "missing", "unknown", "empty"],
)
def test_a_view_refuses_weights_that_no_training_left(
    end: str, spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    model = network()
    ends = {"initial": model.state_dict(), "final": model.state_dict()}
    ends[end] = spoil(dict(model.state_dict()))
    with pytest.raises(WeightsError, match=message) as caught:
        AttackerView(model=model, input_shape=(1, 2, 2), **ends)
    assert f"The {end} weights" in str(caught.value)


@pytest.mark.parametrize(
    "ends", [(1, 0), (0.5, 0.5), (0.0, float("inf")), (-float("inf"), 0.0), (float("nan"), 1.0)], ids=str
)
def test_bounds_are_two_finite_ends_the_lower_first(ends: tuple[float, float]) -> None:
    model, few = network(), Split(inputs=torch.zeros(1, 2), labels=torch.zeros(1, dtype=torch.int64))
    makers: dict[str, Callable[[], Any]] = {
        "view": lambda: AttackerView(model=model, final=model.state_dict(), input_shape=(1, 2, 2), bounds=ends),
        "victim": lambda: small_victim(bounds=ends),
        "dataset": lambda: Dataset(name="", train=few, holdout=few, classes=("a", "b"), bounds=ends),
    }
    for make in makers.values():
        with pytest.raises(ExhumeError, match="two finite numbers, the lower one first") as refusal:
            make()
        assert "\n" not in str(refusal.value)


def test_bounds_read_from_a_file_are_checked_and_the_sentence_names_them(path: Path) -> None:
    small_victim().view().save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()["values"])
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_bundle(path, "view", values | {"bounds": [1.0, 0.0]}, held)
    with pytest.raises(RecordError, match=r"the lower one first, not \(1, 0\)"):
        AttackerView.load(path)


def test_a_view_of_ones_own_module_is_not_saved(tmp_path: Path) -> None:
    model = network()
    with pytest.raises(RecordError, match="cannot be saved"):
        AttackerView(model=model, final=model.state_dict(), input_shape=(1, 2, 2)).save(tmp_path / "view")


def test_pixels_and_model_inputs_are_inverse_and_the_box_is_theirs() -> None:
    view = small_victim(offset=torch.full((1, 1, 1), 0.25)).view()
    pixels = torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(view.to_pixels(view.to_model(pixels)), pixels)
    box = view.model_box()
    assert box is not None
    assert box[0].tolist() == [-0.25] * 4
    assert box[1].tolist() == [0.75] * 4


def test_outputs_are_counted_as_users_run_the_model_and_leave_it_as_it_was() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))
    model[4].eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    assert count_outputs(model, (1, 2, 2)) == 3
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


class Many(nn.Linear):
    """Returns its outputs under a name, as models of some libraries do."""

    def forward(self, inputs: Tensor) -> Any:
        return {"logits": super().forward(inputs)}


@pytest.mark.parametrize(("model", "said"), [(nn.Linear(5, 2), r"\(4,\)"), (Many(4, 2), "returns a dict")])
def test_a_model_that_takes_or_returns_something_else_is_told_so_in_a_sentence(model: nn.Module, said: str) -> None:
    with pytest.raises(ExhumeError, match=said) as refusal:
        count_outputs(model, (4,))
    assert "\n" not in str(refusal.value)
