"""What every study is built on: settings by preset, cells that are measured once, and JSON and figures at the end.

A study is a value. Its function measures one *cell* after another (a method on a data set with a seed) through a
:class:`StudyRun`, which writes every finished cell to disk at once; the same command, run again, reads it from there.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from matplotlib.figure import Figure
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.core.checkpoint import fingerprint
from exhume.core.errors import ExhumeError, RecordError
from exhume.core.json_values import to_json_value
from exhume.core.progress import Progress, no_progress
from exhume.core.storage import load_bundle, save_bundle, write_json
from exhume.records import AttackerView, Dataset, Reconstruction, Victim
from exhume.report.figures import save_figure
from exhume.studies.catalogue import Preset, describe_study
from exhume.training import train
from exhume.version import __version__

Settings = TypeVar("Settings")
UNRECORDED = "unrecorded"
"""The version given for cells that were written before cells recorded their version."""


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """The outcome of a study."""

    numbers: Mapping[str, Any]
    """JSON values and tensors, for ``result.json``."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """By file name; each is written as PNG and SVG."""
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    """Header and rows, for the command line."""
    summary: str = ""
    """What the numbers show, in a sentence or a paragraph."""


@dataclass(kw_only=True)
class StudyRun:
    """One run of a study: its folder of finished cells, its device, seed and progress callback."""

    folder: Path
    identity: str = ""
    """Fingerprint of the study and its settings; cells with another identity are ignored."""
    progress: Progress = no_progress
    device: str = "auto"
    seed: int = 0
    shared: Path | None = None
    """Folder for cells that several studies measure; None: ``folder``, where other studies do not look."""
    jobs: int = 1
    """Number of processes that measure independent cells side by side (:mod:`exhume.studies.side_by_side`)."""
    cells: int = 0
    """Number of cells of the study; set once known, so that progress has a total."""
    finished: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    """Number of cells by the version of exhume that measured them. No cell is measured again for its version."""

    def train(self, data: Dataset, *, seed: int | None = None, **settings: Any) -> Victim:
        """Train a network as :func:`exhume.train` does, on the device of this run."""
        seed = self.seed if seed is None else seed
        return train(data, device=self.device, progress=self.progress, seed=seed, **settings)

    def attack(self, attack: Attack, view: AttackerView, *, seed: int | None = None) -> Reconstruction:
        """Run an attack on the device of this run."""
        seed = self.seed if seed is None else seed
        return attack.run(view, seed=seed, device=self.device, progress=self.progress)

    def cell(
        self, name: str, measure: Callable[[], Mapping[str, Any]], *, needed: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return what ``measure`` returns, read from disk if it was measured before.

        Args:
            name: unique in the study; letters, digits, dashes and slashes.
            measure: the work of this cell alone. Returns JSON values and tensors; its ``seconds`` are added.
            needed: keys that the study reads. A cell that lacks one was written by an older version and is measured
                again.
        """
        return self._cell(self.folder / "cells" / f"{name}.safetensors", self.identity, name, measure, needed)

    def shared_cell(
        self, name: str, about: str, measure: Callable[[], Mapping[str, Any]], *, needed: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return a cell as :meth:`cell` does, for work that several studies share: it is measured once for all.

        Args:
            name: what is measured; part of the file name.
            about: everything the result depends on; a cell with another value of it is ignored.
            measure: as in :meth:`cell`.
            needed: as in :meth:`cell`.
        """
        return self._cell(*self._shared_place(name, about), name, measure, needed)

    def find_shared_cell(self, name: str, about: str, *, needed: Collection[str] = ()) -> dict[str, Any] | None:
        """Return a shared cell from disk; None where it is missing, or lacks a key that the study reads."""
        found = _read_cell(*self._shared_place(name, about))
        return None if found is None or any(key not in found for key in needed) else found

    def shared_file(self, name: str, about: str) -> Path:
        """Return where something that several studies share lies on disk, by everything it depends on."""
        return self._shared_place(name, about)[0]

    def _shared_place(self, name: str, about: str) -> tuple[Path, str]:
        """Return the file and the identity of a shared cell."""
        identity = fingerprint({"about": about})
        place = self.folder / "cells" if self.shared is None else self.shared
        return place / f"{name}-{identity[:8]}.safetensors", identity

    def _cell(
        self,
        path: Path,
        identity: str,
        name: str,
        measure: Callable[[], Mapping[str, Any]],
        needed: Collection[str] = (),
    ) -> dict[str, Any]:
        found = _read_cell(path, identity)
        if found is None or any(key not in found for key in needed):
            started = time.perf_counter()
            found = dict(measure())
            found.setdefault("seconds", time.perf_counter() - started)
            tensors = {key: value for key, value in found.items() if isinstance(value, Tensor)}
            values = {key: to_json_value(value) for key, value in found.items() if key not in tensors}
            save_bundle(path, "cell", values | {"identity": identity, "exhume_version": __version__}, tensors)
            found = values | {key: tensor.detach().cpu() for key, tensor in tensors.items()}
            self.versions[__version__] += 1
        else:
            self.versions[found.pop("exhume_version", UNRECORDED)] += 1
        self.finished += 1
        self.progress("cells", self.finished, max(self.cells, self.finished), name)
        return found


def _read_cell(path: Path, identity: str) -> dict[str, Any] | None:
    try:
        values, tensors = load_bundle(path, "cell")
    except RecordError:  # missing, or cut short by a full disk: measured again
        return None
    return values | tensors if values.pop("identity", None) == identity else None


@dataclass(frozen=True, kw_only=True)
class Study(Generic[Settings]):
    """A measurement that can be repeated: a name, settings by preset, and the function that measures."""

    name: str
    presets: Mapping[Preset, Settings]
    """Settings are frozen dataclasses of JSON values. A study without ``paper`` runs ``gpu`` in its place."""
    measure: Callable[[Settings, StudyRun], StudyResult]
    shows: str = ""
    """One line for the list of studies; by default that of the catalogue."""

    def __post_init__(self) -> None:
        """Take the description from the catalogue."""
        if not self.shows:
            object.__setattr__(self, "shows", describe_study(self.name))

    def run(
        self,
        preset: Preset,
        folder: Path | str,
        *,
        device: str = "auto",
        seed: int = 0,
        progress: Progress = no_progress,
        command: str = "",
        shared: Path | str | None = None,
        jobs: int = 1,
    ) -> StudyResult:
        """Measure everything and write ``result.json`` and the figures to ``folder``.

        Args:
            preset: how much to run.
            folder: for results and for finished cells, from which an interrupted run continues.
            device: ``auto`` uses a GPU if there is one.
            seed: fixes every random choice.
            progress: progress callback.
            command: the command line, for ``result.json``.
            shared: folder for cells that other studies measure too; None: ``folder``.
            jobs: number of processes that measure cells side by side, in studies that can.
        """
        if preset == "paper" and preset not in self.presets:
            preset = "gpu"
        if preset not in self.presets:
            raise ExhumeError(f"The study {self.name} has no preset {preset}; there are {', '.join(self.presets)}.")
        settings = asdict(self.presets[preset])  # type: ignore[call-overload] # a TypeVar cannot ask for a dataclass
        about = {"study": self.name, "preset": preset, "seed": seed, "settings": to_json_value(settings)}
        run = StudyRun(
            folder=Path(folder),
            identity=fingerprint(about),
            progress=progress,
            device=device,
            seed=seed,
            shared=None if shared is None else Path(shared),
            jobs=jobs,
        )
        started = time.perf_counter()
        found = self.measure(self.presets[preset], run)
        for name, figure in found.figures.items():
            save_figure(figure, run.folder / name)
        result = about | {
            "shows": self.shows,
            "command": command,
            "seconds": time.perf_counter() - started,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu",
            "versions": {"exhume": __version__, "torch": str(torch.__version__)},
            "identity": run.identity,
            "cells": dict(run.versions),
            "summary": found.summary,
            "numbers": to_json_value(found.numbers),
            "figures": sorted(found.figures),
        }
        write_json(run.folder / "result.json", result)
        return found


def slug(name: str) -> str:
    """Spell a name as part of a file name.

    >>> slug("RKIP 5% noise")
    'rkip-5-noise'
    """
    return "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in name.lower()).split())


def without_tensors(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a cell, for ``result.json``."""
    return {key: value for key, value in cell.items() if not isinstance(value, Tensor)}


def read_result(folder: Path | str) -> dict[str, Any]:
    """Read the ``result.json`` of a study."""
    path = Path(folder) / "result.json"
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} is not the result of a study ({error}).") from error
    assert isinstance(result, dict)
    return result
