"""Run several attacks on one view, each where it applies, and return everything they find."""

from dataclasses import replace

import torch
from pydantic import InstanceOf
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.records import AttackerView, Outcome, Reconstruction

BEST_FIRST = (
    Outcome.CERTIFIED,
    Outcome.PARTIAL,
    Outcome.CONVERGED,
    Outcome.STEPS_EXHAUSTED,
    Outcome.STALLED,
    Outcome.NOTHING_FOUND,
    Outcome.DIVERGED,
)
"""Outcomes, from the best for an attacker to the worst."""


@settings
class Combined(Attack):
    """Run every attack that applies and keep all candidates, so that the result is never worse than that of one attack.

    Attacks that need the initial weights can be combined with attacks that need only the final ones: where the initial
    weights are known, the certificate proves what it finds, and the other attack searches the span of the change.

    >>> from exhume.attacks.gates.gate_certificate import GateCertificate
    >>> from exhume.attacks.stationarity.max_margin import MaxMargin
    >>> len(Combined(attacks=(GateCertificate(), MaxMargin())).attacks)
    2
    """

    attacks: tuple[InstanceOf[Attack], ...]

    def __post_init__(self) -> None:
        if not self.attacks:
            raise ExhumeError("Combined needs at least one attack.")

    def check(self, view: AttackerView) -> None:
        """Refuse views that every attack refuses, with every reason."""
        reasons = [self._refusal(attack, view) for attack in self.attacks]
        if None not in reasons:
            raise Refusal(" ".join(str(reason) for reason in reasons))

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Run the attacks one after the other, each with its own seed."""
        seeds = torch.randint(2**62, (len(self.attacks),), generator=context.generator).tolist()
        found: list[Reconstruction] = []
        summaries: dict[str, str] = {}
        reasons: list[str] = []
        for number, (attack, seed) in enumerate(zip(self.attacks, seeds, strict=True)):
            name = type(attack).__name__
            own = context.part(f"{name}-{number + 1}", generator=torch.Generator().manual_seed(seed))
            try:
                attack.check(view)
                one = attack.recover(view, own)
            except Refusal as refusal:  # check may pass and recover still refuse
                reasons.append(str(refusal))
                summaries[name] = f"refused: {refusal}"
                continue
            own.discard_checkpoint()
            if tuple(one.inputs.shape[1:]) == view.input_shape:  # features of a frozen layer are not inputs
                found.append(one.cpu())
                summaries[name] = one.message
        if not found:
            raise Refusal(" ".join(reasons))
        return join_reconstructions(found, summaries)

    @staticmethod
    def _refusal(attack: Attack, view: AttackerView) -> Refusal | None:
        try:
            attack.check(view)
        except Refusal as refusal:
            return refusal
        return None


def join_reconstructions(found: list[Reconstruction], summaries: dict[str, str]) -> Reconstruction:
    """Join reconstructions, certified candidates first."""

    def join(name: str) -> Tensor:
        parts: list[Tensor] = [getattr(one, name) for one in found]
        return torch.cat(parts)

    order = join("certified").int().argsort(descending=True, stable=True)
    best = min(found, key=lambda one: BEST_FIRST.index(one.outcome))
    sizes = [
        {name: value for name, value in one.diagnostics.items() if name.startswith("training_size_")} for one in found
    ]
    return replace(
        best,
        inputs=join("inputs")[order],
        certified=join("certified")[order],
        confidence=join("confidence")[order],
        duals=None,
        p_values=None,
        message=" ".join(f"{name}: {message}" for name, message in summaries.items()),
        diagnostics={"attacks": summaries, **next((size for size in sizes if size), {})},
    )
