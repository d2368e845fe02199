"""Victim: a trained network as its owner holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from exhume.core.storage import save_bundle
from exhume.models.architecture import Architecture
from exhume.records.optimiser_state import OptimiserState
from exhume.records.public_training import PublicTraining
from exhume.records.record import Bounds, Record, check_bounds, refuse_misfits
from exhume.records.view import AttackerView, describe_evidence, load_network, pack_weights
from exhume.records.weights import Weights, check_shapes, weight_shapes


@dataclass(frozen=True, kw_only=True, eq=False)
class Victim(Record):
    """A trained network with its initial and final weights and an exact record of the training."""

    architecture: Architecture
    initial: Weights
    final: Weights
    input_shape: tuple[int, ...]
    outputs: int
    bounds: Bounds | None
    offset: Float[Tensor, "..."] | None = None
    linearised: bool = False
    optimiser_state: OptimiserState | None = None
    """What the optimiser remembered at the end, where the training kept it."""
    dataset: str
    training: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the training as JSON values, seed included: enough to repeat it."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """How the training went: steps, loss, seconds, versions."""

    def __post_init__(self) -> None:
        check_bounds(self.bounds)

    def view(self) -> AttackerView:
        """Return what an attacker holds who has the initial and final weights and what a model card states.

        The optimiser's state is among it where the training kept it; to attack without the initial weights, use
        ``dataclasses.replace(victim.view(), initial=None)``. The seed, the name of the data set and the result stay
        with the owner.
        """
        return AttackerView(
            model=self.architecture.build(self.input_shape, self.outputs),
            initial=self.initial,
            final=self.final,
            input_shape=self.input_shape,
            bounds=self.bounds,
            offset=self.offset,
            linearised=self.linearised,
            optimiser_state=self.optimiser_state,
            training=PublicTraining.from_record(self.training),
            architecture=self.architecture,
        )

    def save(self, path: Path | str) -> None:
        """Save as one file."""
        values = {
            "architecture": self.architecture.describe(),
            "input_shape": self.input_shape,
            "outputs": self.outputs,
            "bounds": self.bounds,
            "linearised": self.linearised,
            "dataset": self.dataset,
            "training": dict(self.training),
            "result": dict(self.result),
        } | describe_evidence(None, self.optimiser_state)
        tensors = pack_weights(self.final, self.initial, self.offset, state=self.optimiser_state)
        save_bundle(Path(path), "victim", values, tensors)

    @classmethod
    def load(cls, path: Path | str) -> "Victim":
        """Load what :meth:`save` wrote."""
        with refuse_misfits(path, "victim"):
            victim = cls(**load_network(path, "victim"))
            expected = weight_shapes(victim.architecture.build(victim.input_shape, victim.outputs))
            check_shapes(victim.final, expected, "final")
            check_shapes(victim.initial or {}, expected, "initial")
            PublicTraining.from_record(victim.training)  # refuses facts that a view cannot hold
            return victim
