"""The steps that commands are made of: train into a folder, attack into it, audit it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume.attacks.attack import Attack
from exhume.auditing import audit_to_json
from exhume.auditing.catalogue import by_cost, dashed, known_attacks
from exhume.auditing.kept_results import load_kept, request_digest, run_or_reuse
from exhume.cli.attack_settings import build_all_attacks, build_attacks
from exhume.cli.console import CommandConsole
from exhume.cli.run_folder import RunFolder
from exhume.core.errors import DataError, ExhumeError, Refusal
from exhume.core.json_values import to_json_value
from exhume.core.run_context import OutOfTime
from exhume.core.storage import write_json
from exhume.data import load
from exhume.data.own_files import read_own_files
from exhume.evaluation import evaluate, lead
from exhume.models.architecture import Architecture
from exhume.records import AttackerView, Audit, Dataset, Reconstruction, Victim
from exhume.report import report, save_figures
from exhume.training import Training, train

ITSELF = "-in-run-folder"
"""Tells what lies in a run folder itself from what the same attack left in a sub-folder."""


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Everything that decides what a training ends with, but the device."""

    data: Mapping[str, Any]
    """Arguments of :func:`exhume.load`."""
    model: Architecture
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of :class:`~exhume.training.Training`."""

    def describe(self) -> dict[str, Any]:
        """Return the request as JSON values, so that a later one can be told from it."""
        described = {"data": self.data, "model": self.model.describe(), "training": self.training}
        return {name: to_json_value(value) for name, value in described.items()}


def train_into(
    folder: RunFolder, request: TrainingRequest, *, device: str, console: CommandConsole, overwrite: bool = False
) -> tuple[Dataset, Victim]:
    """Train what is asked for and keep it in ``folder``; what is already there is not trained again."""
    Training(**request.training)  # refuse settings before any data is read
    data = load(**request.data)
    done = folder.load_training()
    if done is not None and done.get("request") == request.describe():
        victim, kept = folder.load_victim(), folder.load_data()
        if kept == data:  # files that data come from may change under the same name
            console.note(f"{folder.path} holds this network already.")
            return data, victim
    if folder.victim.exists() and not overwrite:
        raise ExhumeError(
            f"{folder.path} holds a network trained otherwise; choose another --out, or replace it with --overwrite."
        )
    if overwrite and done is not None and done.get("request") != request.describe():
        folder.forget("training")
    checkpoint = folder.checkpoint("training")
    with folder.open():
        with console.progress(checkpoint) as progress:
            victim = train(
                data,
                model=request.model,
                device=device,
                progress=progress,
                checkpoint=checkpoint,
                **request.training,
            )
        for place in (folder, *(RunFolder(folder.path / name) for name in known_attacks())):
            place.clear_attack()  # what was found in another network
        data.save(folder.data)
        # The network comes last: killed before, nothing here looks like a network that was trained otherwise.
        folder.victim.unlink(missing_ok=True)
        write_json(folder.training, training_account(request, data, victim))
        victim.save(folder.victim)
        folder.forget("training")
    return data, victim


def training_account(request: TrainingRequest, data: Dataset, victim: Victim) -> dict[str, Any]:
    """Return what ``training.json`` holds."""
    account = {
        "schema_version": 1,
        "request": request.describe(),
        "dataset": data.name,
        "classes": data.classes,
        "training_size": len(data.train),
        "holdout_size": len(data.holdout),
        "input_shape": data.input_shape,
        "architecture": victim.architecture.describe(),
        "training": victim.training,
        "result": victim.result,
    }
    return {name: to_json_value(value) for name, value in account.items()}


def choose_attacks(
    view: AttackerView, names: Sequence[str] | None, settings: Sequence[str] | None, console: CommandConsole
) -> dict[str, Attack]:
    """Build the attacks asked for, or the strongest that applies, and make sure that each applies before any runs."""
    wanted = named(names)
    if wanted:
        chosen = build_attacks(wanted, settings or ())
        for attack in chosen.values():
            attack.check(view)
        return chosen
    every = build_all_attacks(settings or ())
    for name in by_cost():
        try:
            every[name].check(view)
        except Refusal as reason:
            console.note(f"{name} does not apply: {reason}")
        else:
            return {name: every[name]}
    raise Refusal("No attack applies to this network; the notes above say what each would need.")


def named(names: Sequence[str] | None) -> list[str]:
    """Return the names of attacks, given one by one or with commas between; none for ``auto``."""
    every = [name.strip() for text in names or () for name in text.split(",")]
    if "auto" in every and len(every) > 1:
        raise ExhumeError("--attacks names attacks or says auto, not both.")
    return [] if every == ["auto"] else every


def attack_into(
    folder: RunFolder,
    view: AttackerView,
    attacks: Mapping[str, Attack],
    *,
    seed: int,
    device: str,
    console: CommandConsole,
) -> dict[str, tuple[RunFolder, Reconstruction]]:
    """Run every attack and keep what it finds: one in ``folder`` itself, several in a sub-folder each."""
    found: dict[str, tuple[RunFolder, Reconstruction]] = {}
    for name, attack in attacks.items():
        place = folder if len(attacks) == 1 else RunFolder(folder.path / name)
        found[name] = place, run_in(place, name, attack, view, seed=seed, device=device, console=console)
    return found


def run_in(
    place: RunFolder,
    name: str,
    attack: Attack,
    view: AttackerView,
    *,
    seed: int,
    device: str,
    console: CommandConsole,
    seconds: float = math.inf,
) -> Reconstruction:
    """Run one attack and keep what it finds and its own account, or find that it did so before."""
    checkpoint = place.checkpoint(name)
    with place.open():
        answered = load_kept(place.reconstruction, request_digest(attack, view, seed))
        if answered is not None and place.result.exists():
            console.note(f"{place.path} holds what {name} found already.")
            return answered
        if answered is None and seconds <= 0:
            raise OutOfTime("The budget is spent.")
        with console.progress(checkpoint) as progress:
            result = run_or_reuse(
                attack,
                view,
                file=place.reconstruction,
                checkpoint=checkpoint,
                seed=seed,
                device=device,
                progress=progress,
                seconds=seconds,
            )
        place.clear_audit()
        write_json(place.result, evaluate(result, victim=view).to_json())
        place.forget(name)
    return result


def audit_into(folder: RunFolder, audit: Audit) -> None:
    """Keep the verdict for machines and people: the audit's page and account, and figures of every attack."""
    first = lead(audit)
    with folder.open():
        folder.clear_audit()
        for name, evaluation in audit.evaluations.items():
            save_figures(evaluation, folder.figures if name == first else folder.figures / name)
        report(audit, folder.report)
        write_json(folder.audit, audit_to_json(audit))


def load_comparison(path: Path, view: AttackerView | None) -> Dataset:
    """Load the examples to compare with, from a run folder or from a data set that was saved, for this network."""
    if path.suffix == ".npz":
        raise DataError(f"{path} is no run folder or saved Dataset; arrays go with --train-data of exhume audit.")
    data = Dataset.load(RunFolder(path).data if path.is_dir() else path)
    if view is not None and data.input_shape != view.input_shape:
        raise DataError(f"{path} holds examples of shape {data.input_shape}, the network takes {view.input_shape}.")
    return data


def find_examples(
    view: AttackerView, run: Path | None, data: Path | None, train_data: Path | None, holdout: Path | None
) -> Dataset | None:
    """Load what to compare with, from wherever it was said to be."""
    if train_data is not None:
        if data is not None or run is not None:
            raise ExhumeError("--train-data and --holdout go with --model alone; a run folder has its own data.")
        return read_own_files(train_data, holdout, input_shape=view.input_shape, bounds=view.bounds, offset=view.offset)
    if holdout is not None:
        raise ExhumeError("--holdout is what --train-data is measured against; name both.")
    if data is not None:
        return load_comparison(data, view)
    return None if run is None else RunFolder(run).load_data()


def name_attack(place: RunFolder, taken: Collection[str]) -> str:
    """Return the name of the attack that wrote to the run folder itself, from how the attack describes itself.

    Restarts go by the name of what was restarted. What the same attack left in a sub-folder of its name is another
    result (by ``exhume audit``, say), and both stay.
    """
    described = place.load_reconstruction().attack.removeprefix("Restarted(attack=")
    name = dashed(described.partition("(")[0]) or "attack"
    return f"{name}{ITSELF}" if name in taken else name
