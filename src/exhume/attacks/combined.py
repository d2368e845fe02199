"""Several attacks on one view, each where it applies, and everything they find together."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import RunContext
from exhume.records import AttackerView, Outcome, Reconstruction

RANKED = (
    Outcome.CERTIFIED,
    Outcome.PARTIAL,
    Outcome.CONVERGED,
    Outcome.STEPS_EXHAUSTED,
    Outcome.STALLED,
    Outcome.NOTHING_FOUND,
    Outcome.DIVERGED,
)
"""Outcomes, the most welcome to an attacker first."""


@dataclass(frozen=True, kw_only=True)
class Combined(Attack):
    """Run every attack that applies and keep all they find, so that together they never do worse than one alone.

    So what needs both ends of a training can stand beside what needs the final weights alone: where the start is known
    the certificate proves what it finds, and the other attack searches the subspace that the change spans.

    >>> from exhume.attacks.gates.gate_certificate import GateCertificate
    >>> from exhume.attacks.stationarity.max_margin import MaxMargin
    >>> len(Combined(attacks=(GateCertificate(), MaxMargin())).attacks)
    2
    """

    attacks: tuple[Attack, ...]

    def __post_init__(self) -> None:
        if not self.attacks:
            raise ExhumeError("Combined needs at least one attack.")

    def check(self, view: AttackerView) -> None:
        """Refuse only what every attack refuses, with every reason."""
        reasons = [self._refusal(attack, view) for attack in self.attacks]
        if None not in reasons:
            raise Refusal(" ".join(str(reason) for reason in reasons))

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Run one after the other, each from a seed of its own."""
        seeds = torch.randint(2**62, (len(self.attacks),), generator=context.generator).tolist()
        found: list[Reconstruction] = []
        account: dict[str, str] = {}
        reasons: list[str] = []
        for number, (attack, seed) in enumerate(zip(self.attacks, seeds, strict=True)):
            name = type(attack).__name__
            own = context.part(f"{name}-{number + 1}", generator=torch.Generator().manual_seed(seed))
            try:
                attack.check(view)
                one = attack.recover(view, own)
            except Refusal as refusal:  # also one that only a closer look brings up
                reasons.append(str(refusal))
                account[name] = f"refused: {refusal}"
                continue
            own.discard_checkpoint()
            if tuple(one.inputs.shape[1:]) == view.input_shape:  # features of a frozen layer are no inputs
                found.append(one.cpu())
                account[name] = one.message
        if not found:
            raise Refusal(" ".join(reasons))
        return together(found, account)

    @staticmethod
    def _refusal(attack: Attack, view: AttackerView) -> Refusal | None:
        try:
            attack.check(view)
        except Refusal as refusal:
            return refusal
        return None


def together(found: list[Reconstruction], account: dict[str, str]) -> Reconstruction:
    """Join reconstructions; what is proven comes first."""

    def joined(name: str) -> Tensor:
        parts: list[Tensor] = [getattr(one, name) for one in found]
        return torch.cat(parts)

    order = joined("certified").int().argsort(descending=True, stable=True)
    best = min(found, key=lambda one: RANKED.index(one.outcome))
    estimates = [
        one.diagnostics["training_size_estimate"] for one in found if "training_size_estimate" in one.diagnostics
    ]
    return replace(
        best,
        inputs=joined("inputs")[order],
        certified=joined("certified")[order],
        confidence=joined("confidence")[order],
        duals=None,
        p_values=None,
        message=" ".join(f"{name}: {message}" for name, message in account.items()),
        diagnostics={"attacks": account, **({"training_size_estimate": estimates[0]} if estimates else {})},
    )
