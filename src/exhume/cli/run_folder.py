"""A run on disk: what each file is called, and how a folder is kept free of half-finished or outdated files."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.auditing.kept_results import forget
from exhume.core.errors import ExhumeError, RecordError
from exhume.records import Dataset, Reconstruction, Victim


@dataclass(frozen=True)
class RunFolder:
    """One folder holds one run: data and network, and what one attack made of it."""

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
        """What was trained and how it went, for machines."""
        return self.path / "training.json"

    @property
    def reconstruction(self) -> Path:
        """What the attack found."""
        return self.path / "reconstruction.safetensors"

    @property
    def result(self) -> Path:
        """The attack's own account, which no data went into, for machines."""
        return self.path / "result.json"

    @property
    def audit(self) -> Path:
        """The attack measured against the data, for machines."""
        return self.path / "audit.json"

    @property
    def report(self) -> Path:
        """The same as a page."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """The same as pictures."""
        return self.path / "figures"

    def checkpoint(self, work: str) -> Path:
        """Where long work keeps its state."""
        return self.path / "checkpoints" / f"{work}.safetensors"

    def load_victim(self) -> Victim:
        """Load the network, or say what kind of folder is needed."""
        if not self.victim.is_file():
            raise RecordError(
                f"{self.path} holds no trained network ({self.victim.name}); name a folder that 'exhume train' wrote."
            )
        return Victim.load(self.victim)

    def load_data(self) -> Dataset | None:
        """Load the examples, if they are here."""
        return Dataset.load(self.data) if self.data.exists() else None

    def load_training(self) -> dict[str, Any] | None:
        """Load the account of a finished training, if there is one."""
        if not (self.victim.exists() and self.training.exists()):
            return None
        try:
            account = json.loads(self.training.read_text())
        except ValueError as error:
            raise RecordError(f"{self.training} is not the JSON that 'exhume train' wrote ({error}).") from error
        return account if isinstance(account, dict) else None

    def reconstructions(self) -> dict[str, "RunFolder"]:
        """Return the folders here that hold a reconstruction, this one and those of several attacks, by name."""
        below = sorted(self.path.iterdir()) if self.path.is_dir() else []
        folders = {"": self} | {folder.name: RunFolder(folder) for folder in below if folder.is_dir()}
        return {name: folder for name, folder in folders.items() if folder.reconstruction.is_file()}

    def load_reconstruction(self) -> Reconstruction:
        """Load what the attack found."""
        return Reconstruction.load(self.reconstruction)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make the folder and make sure that it can be written; leave no trace of it if the work writes nothing."""
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise ExhumeError(f"{self.path} cannot be written ({error.strerror}); choose another --out.") from error
        for half in self.path.glob(".*.*.*"):  # what a killed command was about to write
            if half.is_file() and half.suffixes[-2:-1] in ([".safetensors"], [".json"], [".html"], [".png"], [".svg"]):
                half.unlink(missing_ok=True)
        try:
            yield
        finally:
            for folder in made:
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()

    def forget(self, work: str) -> None:
        """Remove the state of finished work."""
        checkpoint = self.checkpoint(work)
        checkpoint.unlink(missing_ok=True)
        if checkpoint.parent.is_dir() and not any(checkpoint.parent.iterdir()):
            checkpoint.parent.rmdir()

    def clear_attack(self) -> None:
        """Remove what an earlier attack left, which is not about the network or the attack that comes now."""
        forget(self.reconstruction)
        self.result.unlink(missing_ok=True)
        self.clear_audit()

    def clear_audit(self) -> None:
        """Remove what an earlier evaluation left."""
        for file in (self.audit, self.report):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.figures, ignore_errors=True)
