"""Storage: files are whole or untouched, and hold what was saved."""

import json
import os

import pytest
import torch

from exhume.core.errors import RecordError
from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix, write_atomically, write_json


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_others_may_read(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"
    assert path.stat().st_mode & 0o777 == 0o644


def test_json_without_a_number_is_refused(tmp_path):
    path = tmp_path / "values.json"
    write_json(path, {"loss": 0.5})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"loss": float("nan")})
    assert json.loads(path.read_text()) == {"loss": 0.5}


def test_a_bundle_comes_back_detached_from_its_layout(tmp_path):
    path = tmp_path / "bundle"
    weight = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    save_bundle(path, "thing", {"steps": 3}, {"w": weight, "same": weight})
    values, tensors = load_bundle(path, "thing")
    assert values == {"steps": 3}
    assert torch.equal(tensors["w"], weight.detach())
    assert torch.equal(tensors["same"], weight.detach())


def test_a_former_name_of_a_kind_is_accepted_where_it_is_named(tmp_path):
    path = tmp_path / "bundle"
    save_bundle(path, "old name", {}, {"w": torch.ones(1)})
    load_bundle(path, "new name", former_kind="old name")
    with pytest.raises(RecordError, match="is not a saved new name"):
        load_bundle(path, "new name")


def test_prefixes_are_added_and_selected_whole():
    tensors = {"w": torch.ones(1), "deep/b": torch.zeros(1)}
    packed = add_prefix("final", tensors) | add_prefix("finally", tensors)
    assert select_prefix(packed, "final") == tensors
    assert select_prefix(packed, "fin") == {}
