"""Read training checkpoints: the weights and the optimiser's state, in the layouts of common training frameworks.

Nothing inside a file is executed (:mod:`exhume.core.weight_files`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from exhume.core.errors import WeightsError
from exhume.core.weight_files import load_weights, read_content, take_weights

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "model.bin", "pytorch_model.pt")
"""Names of the weights in the folder of a Hugging Face Trainer or of Accelerate."""
OPTIMISER_FILES = ("optimizer.pt", "optimizer.bin")
"""Names of the optimiser's state in the folder of a Hugging Face Trainer, and of Accelerate."""


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint:
    """What a training checkpoint holds, as stored."""

    weights: dict[str, Tensor]
    optimisers: tuple[Mapping[str, Any], ...]
    """The ``state_dict()`` of each optimiser, with parameters by number."""
    layout: str
    """The kind of file or folder, in words."""


def read_training_checkpoint(path: Path | str, names: Collection[str] = ()) -> TrainingCheckpoint:
    """Read the weights and the optimisers' states of a file or folder.

    Args:
        path: a PyTorch file (a dictionary of weights and optimiser, a Lightning ``.ckpt``), or the folder of a Hugging
            Face Trainer or of Accelerate.
        names: the names of the weights in the model, where they are known.

    Raises:
        WeightsError: with one sentence, where the file is missing, damaged, foreign, or would execute code.
    """
    path = Path(path)
    if path.is_dir():
        return _read_folder(path, names)
    content = read_content(path)
    states = tuple(_find_optimisers(content))
    if isinstance(content, Mapping) and "param_groups" in content:
        raise WeightsError(f"{path} holds the state of an optimiser and no weights; name the checkpoint's folder.")
    is_lightning = isinstance(content, Mapping) and "pytorch-lightning_version" in content
    return TrainingCheckpoint(
        weights=take_weights(path, content, names),
        optimisers=states,
        layout="Lightning checkpoint" if is_lightning else "PyTorch file",
    )


def _read_folder(folder: Path, names: Collection[str]) -> TrainingCheckpoint:
    shards = sorted(folder.glob("model-*-of-*.safetensors"))
    single = [folder / name for name in WEIGHT_FILES if (folder / name).is_file()]
    if not single and not shards:
        raise WeightsError(f"{folder} holds no file of weights; known names are {', '.join(WEIGHT_FILES)}.")
    if single:
        weights = load_weights(single[0], names)
    else:
        weights = {name: tensor for shard in shards for name, tensor in load_weights(shard, names).items()}
    states = [folder / name for name in OPTIMISER_FILES if (folder / name).is_file()]
    is_trainer = (folder / "trainer_state.json").exists() or (folder / "optimizer.pt").exists()
    return TrainingCheckpoint(
        weights=weights,
        optimisers=tuple(state for file in states for state in _find_optimisers(read_content(file))),
        layout="Hugging Face Trainer folder" if is_trainer else "Accelerate folder",
    )


def _find_optimisers(content: object) -> list[Mapping[str, Any]]:
    """Return every optimiser's state at the top of a file, under whatever name, alone or in a list."""
    if _is_optimiser(content):
        return [content]  # type: ignore[list-item] # it is a mapping
    values = list(content.values()) if isinstance(content, Mapping) else []
    nested = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
    return [one for one in nested if _is_optimiser(one)]


def _is_optimiser(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("state"), Mapping)
        and isinstance(value.get("param_groups"), list | tuple)
    )
