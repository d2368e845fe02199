"""The frame every study hangs on: settings by preset, cells that are never measured twice, JSON and figures at the end.

A study is a value. Its function measures one *cell* after another (a method on a data set with a seed) through a
:class:`Bench`, which keeps every finished cell on disk at once; the same command, run again, finds it there.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from matplotlib.figure import Figure
from torch import Tensor

from exhume.core.checkpoint import fingerprint
from exhume.core.errors import ExhumeError, RecordError
from exhume.core.json_values import to_json_value
from exhume.core.progress import Progress, no_progress
from exhume.core.storage import load_bundle, save_bundle, write_json
from exhume.report.figures import save_figure
from exhume.version import __version__

Preset = Literal["smoke", "cpu", "gpu", "paper"]
"""How much of a study to run: enough to see that it runs, what a laptop does in minutes, what a GPU does in minutes,
and the paper's own full setting."""
Settings = TypeVar("Settings")
UNRECORDED = "unrecorded"
"""The version of cells that were measured before cells said so."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a study found."""

    numbers: Mapping[str, Any]
    """JSON values and tensors; goes into ``result.json``."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """By file name; each is written as PNG and SVG."""
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    """A head and rows, for a person at the command line."""
    summary: str = ""
    """What the numbers say, in a sentence or a paragraph that follows from them."""


@dataclass(kw_only=True)
class Bench:
    """Where a study works: a folder for finished cells, a listener, a device and a seed."""

    folder: Path
    identity: str = ""
    """Of the study and its settings; a cell measured under another one does not count."""
    progress: Progress = no_progress
    device: str = "auto"
    seed: int = 0
    shared: Path | None = None
    """Where cells are kept that several studies measure; None: in ``folder``, where others do not look."""
    cells: int = 0
    """How many cells the study has; set it once known, so that progress has a total."""
    finished: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    """How many cells each version of exhume measured; for the record, since none is measured again for its version."""

    def cell(
        self, name: str, measure: Callable[[], Mapping[str, Any]], *, needed: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return what ``measure`` returns, JSON values and tensors, from the disk if it was measured before.

        Args:
            name: unique in the study; letters, digits, dashes and slashes.
            measure: the work of this cell alone; the ``seconds`` it took are added to what it returns.
            needed: what the study reads of a cell; one that lacks any of it was measured before the study asked, and
                is measured again.
        """
        return self._cell(self.folder / "cells" / f"{name}.safetensors", self.identity, name, measure, needed)

    def shared_cell(self, name: str, about: str, measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """As :meth:`cell`, for work that studies have in common: whoever measures it first measures it for all.

        Args:
            name: of what is measured, for people.
            about: everything the result depends on; a cell measured about anything else does not count.
            measure: as in :meth:`cell`.
        """
        identity = fingerprint({"about": about})
        place = self.folder / "cells" if self.shared is None else self.shared
        return self._cell(place / f"{name}-{identity[:8]}.safetensors", identity, name, measure)

    def _cell(
        self,
        path: Path,
        identity: str,
        name: str,
        measure: Callable[[], Mapping[str, Any]],
        needed: Collection[str] = (),
    ) -> dict[str, Any]:
        found = _kept(path, identity)
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


def _kept(path: Path, identity: str) -> dict[str, Any] | None:
    try:
        values, tensors = load_bundle(path, "cell")
    except RecordError:  # not there, or cut short by a full disk: measured again either way
        return None
    return values | tensors if values.pop("identity", None) == identity else None


@dataclass(frozen=True, kw_only=True)
class Study(Generic[Settings]):
    """A measurement somebody can repeat: what it shows, how much of it to run, and the function that does."""

    name: str
    shows: str
    """One line for the list of studies."""
    presets: Mapping[Preset, Settings]
    """Settings are frozen dataclasses of JSON values. A study without ``paper`` runs its ``gpu`` in place of it."""
    measure: Callable[[Settings, Bench], Findings]

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
    ) -> Findings:
        """Measure everything and leave ``result.json`` and the figures in ``folder``.

        Args:
            preset: how much to run.
            folder: where results go, and finished cells, from which an interrupted run continues.
            device: ``auto`` takes a GPU when there is one.
            seed: fixes every random choice.
            progress: hears where the study stands.
            command: what was typed, for the record.
            shared: a folder for cells that other studies may measure too; None: ``folder``.
        """
        if preset == "paper" and preset not in self.presets:
            preset = "gpu"
        if preset not in self.presets:
            raise ExhumeError(f"The study {self.name} has no preset {preset}; there are {', '.join(self.presets)}.")
        settings = asdict(self.presets[preset])  # type: ignore[call-overload] # a TypeVar cannot ask for a dataclass
        about = {"study": self.name, "preset": preset, "seed": seed, "settings": to_json_value(settings)}
        bench = Bench(
            folder=Path(folder),
            identity=fingerprint(about),
            progress=progress,
            device=device,
            seed=seed,
            shared=None if shared is None else Path(shared),
        )
        started = time.perf_counter()
        found = self.measure(self.presets[preset], bench)
        for name, figure in found.figures.items():
            save_figure(figure, bench.folder / name)
        account = about | {
            "shows": self.shows,
            "command": command,
            "seconds": time.perf_counter() - started,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu",
            "versions": {"exhume": __version__, "torch": str(torch.__version__)},
            "identity": bench.identity,
            "cells": dict(bench.versions),
            "summary": found.summary,
            "numbers": to_json_value(found.numbers),
            "figures": sorted(found.figures),
        }
        write_json(bench.folder / "result.json", account)
        return found


def read_result(folder: Path | str) -> dict[str, Any]:
    """Read the ``result.json`` a study left."""
    path = Path(folder) / "result.json"
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} is not the result of a study ({error}).") from error
    assert isinstance(result, dict)
    return result
