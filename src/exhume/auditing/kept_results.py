"""Keep what an attack found, so that nothing finished is done twice, whatever ended the program."""

import json
from pathlib import Path

import torch

from exhume.attacks.attack import Attack
from exhume.core.checkpoint import fingerprint
from exhume.core.errors import RecordError
from exhume.core.progress import Progress, no_progress
from exhume.core.storage import write_json
from exhume.records import AttackerView, Reconstruction
from exhume.version import __version__

REQUEST = "request.json"
"""Written last: where it stands, what lies beside it is whole and answers this request."""


def run_or_reuse(
    attack: Attack,
    view: AttackerView,
    *,
    file: Path,
    checkpoint: Path | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    seconds: float | None = None,
) -> Reconstruction:
    """Return what this attack found in this view before, or run it and keep what it finds in ``file``.

    Every file is replaced in one step and the request is written last, so a program killed at any moment leaves either
    the state of its last checkpoint or the whole result.
    """
    request = request_digest(attack, view, seed)
    answered = load_kept(file, request)
    if answered is not None:
        return answered
    found = attack.run(view, seed=seed, device=device, progress=progress, checkpoint=checkpoint, seconds=seconds)
    forget(file)
    found.save(file)
    write_json(file.with_name(REQUEST), {"request": request, "attack": repr(attack), "seed": seed})
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return found


def load_kept(file: Path, request: str) -> Reconstruction | None:
    """Return what lies in ``file`` if it answers this request."""
    try:
        said = json.loads(file.with_name(REQUEST).read_text())
        return Reconstruction.load(file) if said["request"] == request else None
    except (OSError, ValueError, LookupError, TypeError, RecordError):
        return None


def is_result_of(file: Path, view: AttackerView) -> bool:
    """Tell whether what lies in ``file`` was found in this view, whatever the attack's settings and seed."""
    try:
        said = json.loads(file.with_name(REQUEST).read_text())
        return bool(said["request"] == _request(said["attack"], view, said["seed"]))
    except (OSError, ValueError, LookupError, TypeError):
        return False


def forget(file: Path) -> None:
    """Remove a result, the word that it is whole first."""
    file.with_name(REQUEST).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def request_digest(attack: Attack, view: AttackerView, seed: int) -> str:
    """Return a digest of everything that decides what an attack finds, but the device."""
    return _request(repr(attack), view, seed)


def _request(attack: str, view: AttackerView, seed: int) -> str:
    ends = {"initial": view.initial or {}, "final": view.final}
    names = [(end, name) for end, weights in ends.items() for name in sorted(weights)]
    values = {
        "attack": attack,
        "seed": seed,
        "version": __version__,
        "names": names,
        "model": repr(view.model),
        "shape": view.input_shape,
        "bounds": view.bounds,
        "linearised": view.linearised,
        "training": view.training.facts(),
    }
    offset = [] if view.offset is None else [view.offset]
    return fingerprint(values, *(_plain(ends[end][name]) for end, name in names), *offset)


def _plain(weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor that NumPy knows too; bfloat16 it does not."""
    return weight.float() if weight.dtype == torch.bfloat16 else weight
