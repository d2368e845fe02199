"""Checkpoints: saved state comes back, and only to the work it belongs to."""

import pytest
import torch

from exhume.core import checkpoint as module
from exhume.core.checkpoint import Checkpoint, fingerprint
from exhume.core.errors import ExhumeError


def test_state_comes_back_to_the_same_work(tmp_path):
    path = tmp_path / "state"
    assert Checkpoint(path, "me").load() is None
    Checkpoint(path, "me").save({"step": 3}, {"w": torch.ones(2)})
    values, tensors = Checkpoint(path, "me").load()
    assert values == {"step": 3}
    assert torch.equal(tensors["w"], torch.ones(2))


def test_other_work_is_refused_and_the_file_stays(tmp_path):
    path = tmp_path / "state"
    Checkpoint(path, "me", "search").save({}, {"w": torch.ones(2)})
    before = path.read_bytes()
    with pytest.raises(ExhumeError, match="belongs to a search with other settings or data"):
        Checkpoint(path, "other work", "search").load()
    with pytest.raises(ExhumeError, match="is not a saved training"):
        Checkpoint(path, "me", "training").load()
    assert path.read_bytes() == before


def test_a_save_is_due_when_the_last_one_is_old(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    file = Checkpoint(tmp_path / "state", "me")
    assert not file.is_due()
    now[0] += module.SAVE_SECONDS
    assert file.is_due()
    file.save({}, {"w": torch.ones(1)})
    assert not file.is_due()


@pytest.mark.parametrize(
    "other",
    [
        ({"lr": 0.2}, torch.zeros(2, 3)),
        ({"lr": 0.1}, torch.ones(2, 3)),
        ({"lr": 0.1}, torch.zeros(3, 2)),
        ({"lr": 0.1}, torch.zeros(2, 3, dtype=torch.float64)),
        ({"lr": 0.1},),
    ],
    ids=["setting", "value", "shape", "type", "absent"],
)
def test_a_fingerprint_differs_by_settings_values_shapes_and_types(other):
    assert fingerprint({"lr": 0.1}, torch.zeros(2, 3)) != fingerprint(*other)


def test_a_fingerprint_does_not_depend_on_order_or_layout():
    tensor = torch.arange(6.0).reshape(2, 3)
    assert fingerprint({"a": 1, "b": 2}, tensor) == fingerprint({"b": 2, "a": 1}, tensor.T.contiguous().T)
