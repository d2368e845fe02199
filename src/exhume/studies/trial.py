"""One network and one attack on it: the unit of work of the reconstruction figures."""

import functools
from dataclasses import dataclass
from typing import Any

from exhume.attacks.attack import Attack
from exhume.core.devices import resolve_device
from exhume.evaluation import evaluate
from exhume.evaluation.network import kernel_movement
from exhume.models.mlp import MLP
from exhume.studies.metrics import evaluation_numbers
from exhume.studies.study import StudyRun
from exhume.studies.tasks import load_task
from exhume.training.settings import Schedule

RENAMED_SETTINGS = {"within_span=": "within_subspace=", ", splits=0": ""}
"""Settings of attacks by their present names and the names in finished cells, or nothing where these had no such
setting, so that older cells stay valid."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A network of Loo et al. (2023), trained on a draw of a source, and an attack on it.

    :attr:`identity` is made of ``repr``, so field names and their order are part of the file format.
    """

    source: str
    size: int
    width: int
    attack: Attack
    ten_classes: bool = False
    """Whether to train on all classes instead of the paper's two groups of them."""
    linearised: bool = False
    stop_loss: float = 1e-6
    schedule: Schedule = "fast"
    seed: int = 0
    pictures: int = 0
    """Number of pairs (reconstruction, training image) to keep, evenly spaced from the best to the worst."""

    @property
    def identity(self) -> str:
        """Everything the result depends on, as text; finished cells are found by it."""
        text = repr(self)
        for new, old in RENAMED_SETTINGS.items():
            text = text.replace(new, old)
        return text

    def run(self, run: StudyRun) -> dict[str, Any]:
        """Train, attack and measure, unless another study has done so."""
        task = "ten" if self.ten_classes else "two"
        dynamics = "linearised" if self.linearised else "standard"
        name = f"{self.source}-{task}/{self.size}-{self.width}-{dynamics}-{self.seed}"
        return run.shared_cell(name, self.identity, functools.partial(self._measure, run))

    def _measure(self, run: StudyRun) -> dict[str, Any]:
        data = load_task(self.source, self.size, self.seed, all_classes=self.ten_classes)
        victim = run.train(
            data, model=MLP(width=self.width), linearised=self.linearised, stop_loss=self.stop_loss,
            schedule=self.schedule, seed=self.seed,
        )  # fmt: skip
        view = victim.view()
        found = run.attack(self.attack, view, seed=self.seed)
        return {
            "kernel_distance": kernel_movement(view.to(resolve_device(run.device)), data),
            "training_loss": victim.result["loss"],
            "training_seconds": victim.result["seconds"],
            "attack": found.attack,
        } | evaluation_numbers(evaluate(found, data), self.pictures)
