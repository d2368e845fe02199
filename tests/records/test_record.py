"""All records: saved records load as equal ones, and other files are refused in one sentence."""

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

from exhume.core.errors import ExhumeError, RecordError
from exhume.core.storage import save_bundle
from exhume.records import AttackerView, Dataset, Split
from tests.records.made_up import RECORDS, make_network, make_victim

# The run-time shape checker samples containers with the random module, also within strategies.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module")
quick = settings(max_examples=20)


every_record = pytest.mark.parametrize("kind", RECORDS)


@every_record
@quick
@given(data=st.data())
def test_saved_records_load_as_equal_records(kind: str, path: Path, data: st.DataObject) -> None:
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
    """Unpickling this would fail the test in a way that cannot be caught."""

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


@pytest.mark.parametrize(
    "ends", [(1, 0), (0.5, 0.5), (0.0, float("inf")), (-float("inf"), 0.0), (float("nan"), 1.0)], ids=str
)
def test_bounds_are_two_finite_ends_the_lower_first(ends: tuple[float, float]) -> None:
    model, few = make_network(), Split(inputs=torch.zeros(1, 2), labels=torch.zeros(1, dtype=torch.int64))
    makers: dict[str, Callable[[], Any]] = {
        "view": lambda: AttackerView(model=model, final=model.state_dict(), input_shape=(1, 2, 2), bounds=ends),
        "victim": lambda: make_victim(bounds=ends),
        "dataset": lambda: Dataset(name="", train=few, holdout=few, classes=("a", "b"), bounds=ends),
    }
    for make in makers.values():
        with pytest.raises(ExhumeError, match="two finite numbers, the lower one first") as refusal:
            make()
        assert "\n" not in str(refusal.value)
