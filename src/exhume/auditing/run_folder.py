"""A run on disk: the name of each file, and how a folder stays free of incomplete and outdated files."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.core.errors import ExhumeError, RecordError
from exhume.records import Dataset, Reconstruction, Victim


@dataclass(frozen=True)
class RunFolder:
    """One folder holds one run: data and network, the result of one attack, and its evaluation."""

    path: Path

    @property
    def data(self) -> Path:
        """The training, held-out and test examples."""
        return self.path / "data.safetensors"

    @property
    def victim(self) -> Path:
        """The network, before and after training."""
        return self.path / "victim.safetensors"

    @property
    def training(self) -> Path:
        """The settings and the result of the training, as JSON."""
        return self.path / "training.json"

    @property
    def reconstruction(self) -> Path:
        """The result of the attack."""
        return self.path / "reconstruction.safetensors"

    @property
    def request(self) -> Path:
        """The request that the result answers, as JSON; written last, so where it exists the result is complete."""
        return self.path / "request.json"

    @property
    def result(self) -> Path:
        """What the attacker knows of the result without any data, as JSON."""
        return self.path / "result.json"

    @property
    def audit(self) -> Path:
        """The audit, with every score against the data, as JSON."""
        return self.path / "audit.json"

    @property
    def report(self) -> Path:
        """The audit as a page."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """The figures of the audit."""
        return self.path / "figures"

    def checkpoint(self, work: str, request: str = "") -> Path:
        """Return the file that long work saves its state to; a digest of the request keeps other work apart."""
        return self.path / "checkpoints" / request[:12] / f"{work}.safetensors"

    def load_victim(self) -> Victim:
        """Load the network.

        Raises:
            RecordError: when there is none here.
        """
        if not self.victim.is_file():
            raise RecordError(
                f"{self.path} holds no trained network ({self.victim.name}); name a folder that 'exhume train' wrote."
            )
        return Victim.load(self.victim)

    def load_data(self) -> Dataset | None:
        """Load the examples; None when there are none here."""
        return Dataset.load(self.data) if self.data.exists() else None

    def load_training(self) -> dict[str, Any] | None:
        """Load what ``training.json`` holds; None when no training was finished here."""
        if not (self.victim.exists() and self.training.exists()):
            return None
        try:
            values = json.loads(self.training.read_text())
        except ValueError as error:
            raise RecordError(f"{self.training} is not the JSON that 'exhume train' wrote ({error}).") from error
        return values if isinstance(values, dict) else None

    def reconstructions(self) -> dict[str, "RunFolder"]:
        """Return this folder and its sub-folders that hold a reconstruction, by name; this one has an empty name."""
        below = sorted(self.path.iterdir()) if self.path.is_dir() else []
        folders = {"": self} | {folder.name: RunFolder(folder) for folder in below if folder.is_dir()}
        return {name: folder for name, folder in folders.items() if folder.reconstruction.is_file()}

    def load_reconstruction(self) -> Reconstruction:
        """Load the result of the attack."""
        return Reconstruction.load(self.reconstruction)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Create the folder and check that it is writable; remove it again if the block writes nothing."""
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise ExhumeError(f"{self.path} cannot be written ({error.strerror}); choose another folder.") from error
        for half in self.path.glob(".*.*.*"):  # files that a killed command had begun to write
            if half.is_file() and half.suffixes[-2:-1] in ([".safetensors"], [".json"], [".html"], [".png"], [".svg"]):
                half.unlink(missing_ok=True)
        try:
            yield
        finally:
            for folder in made:
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()

    def remove_checkpoint(self, work: str, request: str = "") -> None:
        """Remove the checkpoint of finished work."""
        checkpoint = self.checkpoint(work, request)
        for file in (checkpoint, *checkpoint.parent.glob(f".{checkpoint.name}.*")):  # also one half-written when killed
            file.unlink(missing_ok=True)
        self._remove_empty_checkpoint_folders()

    def discard_other_checkpoints(self, work: str, request: str) -> bool:
        """Remove checkpoints of the same work for other requests, such as other weights; return whether there were."""
        own = self.checkpoint(work, request).parent
        others = [file for file in (self.path / "checkpoints").rglob(f"{work}*.safetensors") if file.parent != own]
        for file in others:
            file.unlink(missing_ok=True)
        self._remove_empty_checkpoint_folders()
        return bool(others)

    def _remove_empty_checkpoint_folders(self) -> None:
        whole = self.path / "checkpoints"
        for folder in (*whole.glob("*/"), whole):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def clear_attack(self) -> None:
        """Remove the result of an earlier attack and its evaluation."""
        for file in (self.request, self.reconstruction, self.result):  # the request first: it vouches for the others
            file.unlink(missing_ok=True)
        self.clear_audit()

    def clear_audit(self) -> None:
        """Remove the audit of an earlier result."""
        for file in (self.audit, self.report):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.figures, ignore_errors=True)
