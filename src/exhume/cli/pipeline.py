"""Steps that commands share: train into a folder, attack into it, write its audit."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume.attacks.attack import Attack
from exhume.auditing import audit_to_json
from exhume.auditing.catalogue import by_cost, dashed, known_attacks
from exhume.auditing.kept_results import run_or_reuse
from exhume.auditing.run_folder import RunFolder
from exhume.cli.attack_settings import build_all_attacks, build_attacks
from exhume.cli.console import CommandConsole
from exhume.core.errors import DataError, ExhumeError, Refusal
from exhume.core.json_values import to_json_value
from exhume.core.storage import write_json
from exhume.data import load
from exhume.data.own_files import read_own_files
from exhume.evaluation import lead
from exhume.models.architecture import Architecture
from exhume.records import AttackerView, Audit, Dataset, Reconstruction, Victim
from exhume.report import report, save_figures
from exhume.training import Training, train

IN_RUN_FOLDER = "-in-run-folder"
"""Suffix for the result in a run folder itself, if a sub-folder has a result of the same attack."""


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Everything that decides the result of a training, except the device."""

    data: Mapping[str, Any]
    """Arguments of :func:`exhume.load`."""
    model: Architecture
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of :class:`~exhume.training.Training`."""

    def describe(self) -> dict[str, Any]:
        """Return the request as JSON values, to compare a later one with it."""
        described = {"data": self.data, "model": self.model.describe(), "training": self.training}
        return {name: to_json_value(value) for name, value in described.items()}


def train_into(
    folder: RunFolder, request: TrainingRequest, *, device: str, console: CommandConsole, overwrite: bool = False
) -> tuple[Dataset, Victim]:
    """Train a network and keep it in ``folder``; a network that is already there is not trained again."""
    Training(**request.training)  # refuses bad settings before any data is read
    data = load(**request.data)
    done = folder.load_training()
    if done is not None and done.get("request") == request.describe():
        victim, kept = folder.load_victim(), folder.load_data()
        if kept == data:  # files may change under the same name
            console.note(f"{folder.path} already holds this network.")
            return data, victim
    if folder.victim.exists() and not overwrite:
        raise ExhumeError(
            f"{folder.path} holds a network with other settings; choose another --out, or replace it with --overwrite."
        )
    if overwrite and done is not None and done.get("request") != request.describe():
        folder.remove_checkpoint("training")
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
            place.clear_attack()  # results about the network that was here
        data.save(folder.data)
        # The network is written last: a command killed before leaves nothing that looks like another network.
        folder.victim.unlink(missing_ok=True)
        write_json(folder.training, training_to_json(request, data, victim))
        victim.save(folder.victim)
        folder.remove_checkpoint("training")
    return data, victim


def training_to_json(request: TrainingRequest, data: Dataset, victim: Victim) -> dict[str, Any]:
    """Return what ``training.json`` holds."""
    values = {
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
    return {name: to_json_value(value) for name, value in values.items()}


def choose_attacks(
    view: AttackerView, names: Sequence[str] | None, settings: Sequence[str] | None, console: CommandConsole
) -> dict[str, Attack]:
    """Build the attacks asked for, or the cheapest that applies, and check that each applies before any runs."""
    wanted = parse_names(names)
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
    raise Refusal("No attack applies to this network; the notes above list what each would need.")


def parse_names(names: Sequence[str] | None) -> list[str]:
    """Split the names of attacks, which may be separated by commas; ``auto`` gives an empty list."""
    every = [name.strip() for text in names or () for name in text.split(",")]
    if "auto" in every and len(every) > 1:
        raise ExhumeError("--attacks takes names of attacks or auto, not both.")
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
    """Run attacks and keep their results: one in ``folder`` itself, several in a sub-folder each."""
    found: dict[str, tuple[RunFolder, Reconstruction]] = {}
    for name, attack in attacks.items():
        place = folder if len(attacks) == 1 else RunFolder(folder.path / name)
        found[name] = (
            place,
            run_or_reuse(name, attack, view, folder=place, seed=seed, device=device, observer=console),
        )
    return found


def write_audit(folder: RunFolder, audit: Audit) -> None:
    """Write the audit as JSON and as a page, with the figures of every attack."""
    first = lead(audit)
    with folder.open():
        folder.clear_audit()
        for name, evaluation in audit.evaluations.items():
            save_figures(evaluation, folder.figures if name == first else folder.figures / name)
        report(audit, folder.report)
        write_json(folder.audit, audit_to_json(audit))


def load_comparison(path: Path) -> Dataset:
    """Load the examples to compare with, from a run folder or a saved data set."""
    if path.suffix == ".npz":
        raise DataError(f"{path} is not a run folder or a saved Dataset; arrays go with --train-data of exhume audit.")
    return Dataset.load(RunFolder(path).data if path.is_dir() else path)


def load_examples(
    view: AttackerView, run: Path | None, data: Path | None, train_data: Path | None, holdout: Path | None
) -> Dataset | None:
    """Load the examples to compare with, from the place that the options name; None where they name none."""
    if train_data is not None:
        if data is not None or run is not None:
            raise ExhumeError("--train-data and --holdout go with --model only; a run folder has its own data.")
        return read_own_files(train_data, holdout, input_shape=view.input_shape, bounds=view.bounds, offset=view.offset)
    if holdout is not None:
        raise ExhumeError("--holdout is the hold-out set of --train-data; name both.")
    if data is not None:
        return load_comparison(data)
    return None if run is None else RunFolder(run).load_data()


def name_attack(place: RunFolder, taken: Collection[str]) -> str:
    """Return the name of the attack that wrote to the run folder itself, read from its settings.

    Restarts have the name of the restarted attack. If a sub-folder has a result of the same attack, for example
    from ``exhume audit``, a suffix distinguishes the two.
    """
    described = place.load_reconstruction().attack.removeprefix("Restarted(attack=")
    name = dashed(described.partition("(")[0]) or "attack"
    return f"{name}{IN_RUN_FOLDER}" if name in taken else name
