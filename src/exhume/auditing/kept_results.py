"""Keep the result of an attack in a run folder, so that nothing finished runs twice, however the program ended."""

import json
import math

import torch

from exhume.attacks.attack import Attack
from exhume.auditing.observer import Observer
from exhume.auditing.run_folder import RunFolder
from exhume.core.checkpoint import fingerprint
from exhume.core.errors import RecordError
from exhume.core.run_context import OutOfTime
from exhume.core.storage import write_json
from exhume.evaluation import evaluate
from exhume.records import AttackerView, Reconstruction
from exhume.version import __version__


def run_or_reuse(
    name: str,
    attack: Attack,
    view: AttackerView,
    *,
    folder: RunFolder,
    seed: int,
    device: str | torch.device,
    observer: Observer,
    seconds: float = math.inf,
    keep_partial: bool = False,
) -> Reconstruction:
    """Return the result that ``folder`` holds for this request, or run the attack and keep its result there.

    Every file is replaced in one step and the request is written last, so that a program killed at any moment leaves
    either the last checkpoint or the complete result.

    Raises:
        OutOfTime: when the attack would have to run longer than ``seconds``. With ``keep_partial`` a search returns
            what it has instead; that is not kept as a result, and the same call continues the search.
    """
    request = request_digest(repr(attack), view, seed)
    checkpoint = folder.checkpoint(name, request)
    with folder.open():
        found = load_kept(folder, request)
        if found is not None and folder.result.exists():
            observer.note(f"{folder.path} already holds the result of {name}.")
            return found
        if found is None:
            if seconds <= 0:
                raise OutOfTime("The budget is spent.")
            if folder.discard_other_checkpoints(name, request):
                observer.note(f"Discarded: unfinished work of {name} on other weights or settings in {folder.path}.")
            with observer.progress(checkpoint) as progress:
                found = attack.run(
                    view,
                    seed=seed,
                    device=device,
                    progress=progress,
                    checkpoint=checkpoint,
                    seconds=seconds,
                    keep_partial=keep_partial,
                )
            if "stopped_at" in found.diagnostics:  # its checkpoint stays, and a later call continues
                return found
            folder.clear_attack()
            found.save(folder.reconstruction)
            write_json(folder.request, {"request": request, "attack": repr(attack), "seed": seed})
        folder.clear_audit()
        write_json(folder.result, evaluate(found, victim=view).to_json())
        folder.remove_checkpoint(name, request)
    return found


def load_kept(folder: RunFolder, request: str) -> Reconstruction | None:
    """Return the result in ``folder`` if it is complete and answers this request; None otherwise."""
    try:
        kept = json.loads(folder.request.read_text())
        return folder.load_reconstruction() if kept["request"] == request else None
    except (OSError, ValueError, LookupError, TypeError, RecordError):
        return None


def is_result_of(folder: RunFolder, view: AttackerView) -> bool:
    """Return whether the result in ``folder`` is about this view, whatever the attack's settings and seed."""
    try:
        kept = json.loads(folder.request.read_text())
        return bool(kept["request"] == request_digest(kept["attack"], view, kept["seed"]))
    except (OSError, ValueError, LookupError, TypeError):
        return False


def request_digest(attack: str, view: AttackerView, seed: int) -> str:
    """Return a digest of everything that decides the result of an attack, except the device.

    Args:
        attack: the attack as ``repr`` writes it.
        view: what the attacker holds.
        seed: of the run.
    """
    state = view.optimiser_state
    ends = {
        "initial": view.initial or {},
        "final": view.final,
        "gradient": view.gradient or {},
        "optimiser state": {} if state is None else state.first_moment,
        "second moment": {} if state is None else state.second_moment,
    }
    for number, other in enumerate(view.more_gradients):
        ends |= {f"weights {number}": other.weights, f"gradient {number}": other.gradient}
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
        **({} if state is None else {"optimiser state": state.describe()}),
    }
    offset = [] if view.offset is None else [view.offset]
    return fingerprint(values, *(_as_numpy_type(ends[end][name]) for end, name in names), *offset)


def _as_numpy_type(weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a type that NumPy has too; bfloat16 becomes float32."""
    return weight.float() if weight.dtype == torch.bfloat16 else weight
