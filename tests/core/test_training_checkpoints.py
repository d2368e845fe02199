"""Training checkpoints that the libraries themselves wrote, and files that are none."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from exhume.core.errors import WeightsError
from exhume.core.training_checkpoints import read_training_checkpoint

RECORDED = Path(__file__).parent / "fixtures" / "checkpoints"
LAYOUTS = {
    "plain": ("last.pt", "PyTorch file"),
    "lightning": ("last.ckpt", "Lightning checkpoint"),
    "trainer": (".", "Hugging Face Trainer folder"),
    "accelerate": (".", "Accelerate folder"),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_recorded_checkpoints_hold_weights_and_one_optimiser(kind: str) -> None:
    file, layout = LAYOUTS[kind]
    found = read_training_checkpoint(RECORDED / kind / file)
    assert found.layout == layout
    assert len(found.weights) == 8
    assert len(found.optimisers) == 1
    assert len(found.optimisers[0]["state"]) == 8


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["beside the weights", "inside the state", "whole file", "plain pickle"])
def test_a_hostile_checkpoint_is_refused_and_does_not_run(tmp_path: Path, place: str) -> None:
    trap, file = Trap(tmp_path / "sprung"), tmp_path / "last.ckpt"
    weights = {"0.weight": torch.zeros(2, 2)}
    optimiser: dict[str, object] = {"state": {0: {"exp_avg": torch.zeros(2, 2)}}, "param_groups": [{"params": [0]}]}
    content: object = {"state_dict": weights, "optimizer_states": [optimiser]}
    if place == "beside the weights":
        content = {"state_dict": weights, "callbacks": trap}
    elif place == "inside the state":
        content = {"state_dict": weights, "optimizer": optimiser | {"state": {0: {"exp_avg": trap}}}}
    else:
        content = trap
    if place == "plain pickle":
        file.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, file)
    with pytest.raises(WeightsError, match=r"would run code|is truncated or not"):
        read_training_checkpoint(file)
    assert not trap.path.exists()


def test_a_hostile_file_in_a_folder_is_refused_and_does_not_run(tmp_path: Path) -> None:
    torch.save({"0.weight": torch.zeros(2, 2)}, tmp_path / "pytorch_model.bin")
    torch.save({"state": {0: Trap(tmp_path / "sprung")}, "param_groups": []}, tmp_path / "optimizer.bin")
    with pytest.raises(WeightsError, match="would run code"):
        read_training_checkpoint(tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_foreign_files_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="holds no file of weights"):
        read_training_checkpoint(tmp_path)
    with pytest.raises(WeightsError, match="There is no file"):
        read_training_checkpoint(tmp_path / "none.pt")
    (tmp_path / "damaged.pt").write_bytes((RECORDED / "plain" / "last.pt").read_bytes()[:3000])
    with pytest.raises(WeightsError, match="truncated"):
        read_training_checkpoint(tmp_path / "damaged.pt")
    torch.save({"state": {}, "param_groups": []}, tmp_path / "optimizer.pt")
    with pytest.raises(WeightsError, match="the state of an optimiser and no weights"):
        read_training_checkpoint(tmp_path / "optimizer.pt")


def test_the_shards_of_a_large_model_are_one_set_of_weights(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    assert read_training_checkpoint(tmp_path).weights.keys() == {"a", "b"}
