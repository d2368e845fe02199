"""Weights from files: every supported wrapping loads, and every bad file is refused in one sentence."""

import functools
import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save as serialise
from safetensors.torch import save_file

from exhume.core.errors import WeightsError
from exhume.core.weight_files import load_weights
from exhume.models.mlp import MLP


def weights() -> dict[str, torch.Tensor]:
    return dict(MLP(width=4, depth=1).build((3,), 1, torch.Generator().manual_seed(0)).state_dict())


def same(loaded, expected) -> bool:
    return loaded.keys() == expected.keys() and all(torch.equal(loaded[name], expected[name]) for name in expected)


def prefixed(prefix, content):
    return {prefix + name: weight for name, weight in content.items()}


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda w: w,
        lambda w: {"state_dict": w, "epoch": 3, "optimizer": {"lr": 0.1}},
        lambda w: {"model": w},
        lambda w: {"model": {"state_dict": w}},
        lambda w: {"model_state_dict": prefixed("module.", w)},
        lambda w: prefixed("_orig_mod.module.", w),
        lambda w: prefixed("model.", w),
        lambda w: {name: torch.nn.Parameter(weight) for name, weight in w.items()},
    ],
)
def test_pytorch_checkpoints_in_every_wrapping(tmp_path, suffix, wrap):
    path = tmp_path / f"model{suffix}"
    torch.save(wrap(weights()), path)
    assert same(load_weights(path), weights())


def test_safetensors_and_the_old_pytorch_format(tmp_path):
    save_file(prefixed("module.", weights()), tmp_path / "model.safetensors")
    assert same(load_weights(tmp_path / "model.safetensors"), weights())
    torch.save(weights(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert same(load_weights(tmp_path / "old.pt"), weights())


def test_a_prefix_that_is_part_of_the_model_stays(tmp_path):
    named = prefixed("model.", weights())
    torch.save(named, tmp_path / "model.pt")
    assert same(load_weights(tmp_path / "model.pt", names=named.keys()), named)
    mixed = weights() | {"module.extra": torch.ones(1)}
    torch.save(mixed, tmp_path / "mixed.pt")
    assert same(load_weights(tmp_path / "mixed.pt"), mixed)


def test_half_precision_and_counters_are_weights_too(tmp_path):
    content = {"half": torch.ones(2, dtype=torch.bfloat16), "count": torch.tensor(3)}
    torch.save(content, tmp_path / "model.pt")
    assert same(load_weights(tmp_path / "model.pt"), content)


class Runs:
    """A pickle that would create a file if it were run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
@pytest.mark.parametrize("suffix", [".pt", ".bin"])
def test_a_pickle_is_refused_and_not_run(tmp_path, save, suffix):
    path, mark = tmp_path / f"model{suffix}", tmp_path / "mark"
    save({"w": Runs(mark)}, path)
    with pytest.raises(WeightsError, match="run code when read"):
        load_weights(path)
    assert not mark.exists()


def self_containing():
    content = {}
    content["model"] = content
    return content


BAD_CONTENT = {
    "NaN": ({"w": torch.tensor([1.0, float("nan")])}, "NaN or infinite values in 'w'"),
    "infinity": ({"w": torch.tensor([float("inf")])}, "NaN or infinite"),
    "complex": ({"w": torch.ones(1, dtype=torch.complex64)}, "complex numbers"),
    "sparse": ({"w": torch.eye(3).to_sparse()}, "other than plain numbers"),
    "spread from one number": ({"w": torch.ones(1).expand(1_000_000_000)}, "other than plain numbers"),
    "empty": ({}, "no weights by name"),
    "list": ([torch.ones(1)], "no weights by name"),
    "a tensor": (torch.ones(1), "no weights by name"),
    "not tensors": ({"w": torch.ones(1), "epoch": 3}, "'epoch', which is no tensor"),
    "numbered": ({0: torch.ones(1)}, "which is no tensor"),
    "itself": (self_containing(), "which is no tensor"),
}


@pytest.mark.parametrize("name", BAD_CONTENT)
def test_what_is_no_weights_is_refused_in_one_sentence(tmp_path, name):
    content, message = BAD_CONTENT[name]
    path = tmp_path / "model.pt"
    torch.save(content, path)
    with pytest.raises(WeightsError, match=message) as refusal:
        load_weights(path)
    assert len(str(refusal.value).splitlines()) == 1


def test_missing_files_and_unknown_endings(tmp_path):
    with pytest.raises(WeightsError, match="no file of weights"):
        load_weights(tmp_path / "model.pt")
    with pytest.raises(WeightsError, match="no file of weights"):
        load_weights(tmp_path)
    (tmp_path / "model.h5").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"known endings are \.safetensors"):
        load_weights(tmp_path / "model.h5")


def test_archives_that_are_no_checkpoints(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 30_000_000)
    with pytest.raises(WeightsError, match="would unpack to 30000000 bytes"):
        load_weights(tmp_path / "bomb.pt")
    (tmp_path / "inside").write_bytes(b"\0" * 1000)
    with tarfile.open(tmp_path / "tar.pt", "w") as archive:
        archive.add(tmp_path / "inside", "storages")
    with pytest.raises(WeightsError):
        load_weights(tmp_path / "tar.pt")


FUZZ = settings(max_examples=60)


@FUZZ
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".safetensors", ".pt", ".ckpt"]))
def test_random_bytes_are_refused(tmp_path, content, suffix):
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(content)
    with pytest.raises(WeightsError):
        load_weights(path)


@functools.cache
def sound_file(kind: str) -> bytes:
    """The bytes of an undamaged file, made once: old PyTorch files contain addresses, and so differ each time."""
    if kind == "plain.safetensors":
        return serialise(weights())
    buffer = io.BytesIO()
    torch.save(weights(), buffer, _use_new_zipfile_serialization=kind == "new.pt")
    return buffer.getvalue()


@FUZZ
@given(data=st.data(), kind=st.sampled_from(["new.pt", "old.pt", "plain.safetensors"]))
def test_damaged_files_load_or_are_refused_and_nothing_else(tmp_path, data, kind):
    path = tmp_path / kind
    content = bytearray(sound_file(kind))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    try:
        loaded = load_weights(path)
    except WeightsError:
        return
    assert all(isinstance(weight, torch.Tensor) for weight in loaded.values())
