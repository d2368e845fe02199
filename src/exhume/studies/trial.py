"""One network and one attack on it: what the figures of reconstruction have in common."""

import functools
from dataclasses import dataclass
from typing import Any

import torch

from exhume.attacks.attack import Attack
from exhume.core.devices import resolve_device
from exhume.data import load
from exhume.data.known_sources import available
from exhume.evaluation import evaluate
from exhume.evaluation.network import kernel_movement
from exhume.models.mlp import MLP
from exhume.records import Dataset, Evaluation
from exhume.studies.loo2023.distilled import load_task
from exhume.studies.study import Bench
from exhume.training.settings import Schedule
from exhume.training.trainer import train


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A network of the paper, trained on a draw of a source, and an attack on it."""

    source: str
    size: int
    width: int
    attack: Attack
    ten_classes: bool = False
    """Tell all classes apart, instead of the paper's two groups of them."""
    linearised: bool = False
    stop_loss: float = 1e-6
    schedule: Schedule = "fast"
    seed: int = 0
    pictures: int = 0
    """How many pairs of reconstruction and training image to keep, evenly spaced from the best to the worst."""

    def run(self, bench: Bench) -> dict[str, Any]:
        """Train, attack and measure, unless another study has done so."""
        task = "ten" if self.ten_classes else "two"
        dynamics = "linearised" if self.linearised else "standard"
        name = f"{self.source}-{task}/{self.size}-{self.width}-{dynamics}-{self.seed}"
        return bench.shared_cell(name, repr(self), functools.partial(self._measure, bench))

    def _measure(self, bench: Bench) -> dict[str, Any]:
        data = drawn(self.source, self.size, self.seed, self.ten_classes)
        victim = train(
            data, model=MLP(width=self.width), linearised=self.linearised, stop_loss=self.stop_loss,
            schedule=self.schedule, seed=self.seed, device=bench.device, progress=bench.progress,
        )  # fmt: skip
        view = victim.view()
        found = self.attack.run(view, seed=self.seed, device=bench.device, progress=bench.progress)
        evaluation = evaluate(found, data)
        return {
            "kernel_distance": kernel_movement(view.to(resolve_device(bench.device)), data),
            "training_loss": victim.result["loss"],
            "training_seconds": victim.result["seconds"],
            "attack": found.attack,
        } | measured(evaluation, self.pictures)


def measured(evaluation: Evaluation, pictures: int = 0) -> dict[str, Any]:
    """Return the numbers of an audit that figures show: the curve, the null's curve, and what counts as recovered."""
    train_set, null = evaluation.train, evaluation.holdout
    assert train_set is not None
    assert null is not None
    assert evaluation.relative is not None
    level = evaluation.relative.level(0.01)
    found: dict[str, Any] = {
        "curve": train_set.curve.float(),
        "null_curve": null.curve.float(),
        "values": train_set.examples[0].numel(),
        "good": train_set.good,
        "fine": train_set.fine,
        "exact": train_set.exact,
        "null_good": null.good,
        "recovered": level.recovered,
        "null_recovered": level.holdout_recovered,
        "certified": evaluation.certified,
        "false_certificates": evaluation.false_certificates,
        "candidates": len(evaluation.found),
        "attack_seconds": evaluation.found.seconds,
        "outcome": evaluation.found.outcome.value,
    }
    if pictures:
        chosen = torch.linspace(0, len(train_set.pairs) - 1, min(pictures, len(train_set.pairs))).round().long()
        pairs = train_set.pairs[chosen]
        found |= {
            "reconstructed": evaluation.found.inputs[pairs[:, 0]],
            "originals": train_set.examples[pairs[:, 1]],
            "pair_squares": train_set.mean_squares[chosen],
        }
    return found


def at_hand(sources: str) -> str:
    """Return the first of some sources, spelt ``"mnist or digits"``, that is here; the last where none is.

    >>> at_hand("digits or faces")
    'digits'
    """
    names = sources.split(" or ")
    here = {one.name for one in available() if one.present}
    return next((name for name in names if name in here), names[-1])


@functools.lru_cache(maxsize=4)
def drawn(source: str, size: int, seed: int, ten_classes: bool) -> Dataset:
    """Load a draw; the last few are remembered, since a row of trials on one draw is what figures ask for."""
    return load(source, size=size, seed=seed, test=0) if ten_classes else load_task(source, size, seed, 0)
