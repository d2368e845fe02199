"""Reconstruction: the result of an attack."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from exhume.core.storage import load_bundle, save_bundle
from exhume.records.record import Record, check_lengths, refuse_misfits, split_tensors


class Outcome(StrEnum):
    """How an attack ended; a failure is also a result."""

    CERTIFIED = "certified"
    """Every candidate has a certificate, and none is missing."""
    PARTIAL = "partial"
    """Some candidates have a certificate; others are missing or have none."""
    CONVERGED = "converged"
    """The objective fell to its tolerance."""
    STALLED = "stalled"
    """The objective stopped falling well above its tolerance."""
    DIVERGED = "diverged"
    """The objective became infinite or not a number."""
    STEPS_EXHAUSTED = "steps exhausted"
    """The objective was still falling when the steps ran out."""
    NOTHING_FOUND = "nothing found"
    """The attack applied and found no candidate that it accepts."""


REQUIRED = ("inputs", "certified", "confidence")
"""Tensors that every reconstruction has."""
PER_CANDIDATE = (*REQUIRED, "duals", "p_values")
"""Tensors with one row per candidate."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reconstruction(Record):
    """What an attack found: inputs in pixel units, the attacker's confidence in each, and how the attack ended."""

    inputs: Float[Tensor, "candidate ..."]
    certified: Bool[Tensor, " candidate"]
    """Which inputs have a proof that they were trained on; all False for attacks without certificates."""
    confidence: Float[Tensor, " candidate"]
    """The attacker's confidence in each input, from 0 to 1, computed from the view alone."""
    duals: Float[Tensor, "candidate dual"] | None = None
    p_values: Float[Tensor, " candidate"] | None = None
    """P-value of each certificate under the null that the candidate is not a training input."""
    outcome: Outcome
    message: str = ""
    """The outcome in one sentence, with advice where there is some."""
    history: Float[Tensor, " recorded"] | None = None
    """The objective over the run, for attacks that have one."""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    """Further findings as JSON values, such as ``training_size_estimate``."""
    attack: str = ""
    seed: int = 0
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.inputs)

    def cpu(self) -> "Reconstruction":
        """Return the same reconstruction with every tensor on the CPU."""
        moved: dict[str, Any] = {name: tensor.cpu() for name, tensor in split_tensors(self)[1].items()}
        return replace(self, **moved)

    def save(self, path: Path | str) -> None:
        """Save as one file."""
        save_bundle(Path(path), "reconstruction", *split_tensors(self))

    @classmethod
    def load(cls, path: Path | str) -> "Reconstruction":
        """Load what :meth:`save` wrote."""
        values, tensors = load_bundle(Path(path), "reconstruction")
        with refuse_misfits(path, "reconstruction"):
            check_lengths(**{name: tensors[name] for name in PER_CANDIDATE if name in REQUIRED or name in tensors})
            misplaced = values.keys() & {*PER_CANDIDATE, "history"}
            if misplaced:
                raise ValueError(f"{min(misplaced)} is not a tensor")
            everything: dict[str, Any] = values | tensors | {"outcome": Outcome(values["outcome"])}
            return cls(**everything)
