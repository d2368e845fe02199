"""Conduct an audit: run what applies, the cheapest first, within a budget."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from exhume.attacks.attack import Attack
from exhume.auditing.applicability import assess
from exhume.auditing.catalogue import attack_name, known_attacks
from exhume.auditing.kept_results import load_kept, request_digest, run_or_reuse
from exhume.auditing.measuring import measured
from exhume.core.devices import resolve_device
from exhume.core.errors import DataError, ExhumeError, Refusal
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import OutOfTime
from exhume.core.text import first_sentence
from exhume.records import (
    Applicability,
    Assessment,
    AttackerView,
    Audit,
    Dataset,
    Outcome,
    Reconstruction,
    StartEvidence,
    count_outputs,
)

BUDGET_MINUTES = 10.0
"""For attacks that nobody asked for by name."""

RAN = "ran"
_STOPPED = "stopped when its part of the budget was spent; a larger one continues from there"
Run = Callable[[str, Attack, float], Reconstruction]
"""From an attack's name, the attack and the seconds it may take to what it found, now or before; what was found before
takes none, so that it is returned even when there are none left. Raises :class:`OutOfTime` otherwise."""


def audit(
    view: AttackerView,
    data: Dataset | None = None,
    *,
    attacks: Sequence[Attack] | None = None,
    budget: float | None = BUDGET_MINUTES,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    folder: Path | str | None = None,
    start: StartEvidence | None = None,
) -> Audit:
    """Attack a network with everything that applies, and measure what was found.

    Args:
        view: what the attacker holds: your own module and weights, or ``victim.view()``.
        data: the data the network was trained on and as much that it was not, to check every claim against; without it
            the dossier holds what the attacker proves, and no score that would need the truth.
        attacks: the attacks to run; None runs every known one that applies, the cheapest first, until every training
            input is proven or the budget is spent.
        budget: minutes for all attacks together, each stopped at its next report when they are over; None: no limit.
        seed: fixes every random choice.
        device: ``auto`` takes a GPU when there is one.
        progress: hears where the attacks stand.
        folder: where to keep finished attacks and the state of unfinished ones; the same call continues from there.
        start: what the search for the start found, to be shown in the report.

    Returns:
        A :class:`~exhume.records.Audit`: give it to :func:`exhume.report`, :func:`exhume.verdict`, or
        :func:`exhume.auditing.audit_json` for JSON.

    Raises:
        DataError: when the data is not of the shape that the network takes.
        Refusal: when an attack that was asked for does not apply.
    """
    if data is not None and data.input_shape != view.input_shape:  # attacks take their time, and this is known now
        raise DataError(f"The data holds examples of shape {data.input_shape}, the network takes {view.input_shape}.")
    chosen = None if attacks is None else _named(attacks)
    place = None if folder is None else Path(folder)

    def run(name: str, attack: Attack, seconds: float) -> Reconstruction:
        file = None if place is None else place / name / "reconstruction.safetensors"
        answered = None if file is None else load_kept(file, request_digest(attack, view, seed))
        if answered is not None:
            return answered
        if seconds <= 0:
            raise OutOfTime("The budget is spent.")
        if place is None or file is None:
            return attack.run(view, seed=seed, device=device, progress=progress, seconds=seconds)
        return run_or_reuse(
            attack,
            view,
            file=file,
            checkpoint=place / name / "checkpoints" / f"{name}.safetensors",
            seed=seed,
            device=device,
            progress=progress,
            seconds=seconds,
        )

    every = {name: kind() for name, kind in known_attacks().items()} if chosen is None else chosen
    found, assessments = conduct(view, every, run, is_auto=chosen is None, budget=budget)
    seen = view.to(resolve_device(device))
    return Audit(
        evaluations={name: measured(one, data, seen) for name, one in found.items()},
        assessments=assessments,
        start=start,
    )


def conduct(
    view: AttackerView, attacks: Mapping[str, Attack], run: Run, *, is_auto: bool, budget: float | None
) -> tuple[dict[str, Reconstruction], tuple[Assessment, ...]]:
    """Run the attacks, the cheapest first, and say what became of each.

    Args:
        view: what the attacker holds.
        attacks: by name.
        run: runs one.
        is_auto: whether nobody asked for these attacks by name: then those that do not apply are passed over, and the
            rest too when every training input is proven.
        budget: minutes for all together; None: no limit.

    Raises:
        ExhumeError: when the model does not take inputs of the view's shape.
        Refusal: when an attack that was asked for does not apply; before any runs, where that can be seen.
    """
    count_outputs(view.model, view.input_shape)  # says so where the model does not take such inputs
    planned = assess(view, attacks)
    if not is_auto:
        for attack in attacks.values():
            attack.check(view)
    deadline = None if budget is None else time.monotonic() + 60 * budget
    found: dict[str, Reconstruction] = {}
    fates: list[Assessment] = []
    for number, one in enumerate(planned):
        left = float("inf") if deadline is None else deadline - time.monotonic()
        if is_auto and one.applies is Applicability.WITH_CAVEATS and _somebody_waits(planned[number + 1 :]):
            left /= 2  # it may not get anywhere, and others may
        reason = _not_to_run(one, found, is_auto=is_auto)
        if reason is not None:
            fates.append(replace(one, fate=reason))
            continue
        try:
            found[one.attack] = run(one.attack, attacks[one.attack], left)
        except Refusal as refusal:
            if not is_auto:
                raise
            fates.append(replace(one, applies=Applicability.DOES_NOT, reasons=(str(refusal),)))
        except OutOfTime:
            fates.append(replace(one, fate=_STOPPED if left > 0 else "not run: the budget was spent"))
        except ExhumeError:
            raise
        except Exception as error:  # a fault of ours in one attack must not cost what the others find
            if not is_auto:
                raise
            fates.append(replace(one, fate=f"ended by an error ({type(error).__name__}: {first_sentence(error)})"))
        else:
            fates.append(replace(one, fate=RAN))
    return found, tuple(fates)


def _somebody_waits(rest: Sequence[Assessment]) -> bool:
    return any(one.applies is not Applicability.DOES_NOT for one in rest)


def _not_to_run(one: Assessment, found: Mapping[str, Reconstruction], *, is_auto: bool) -> str | None:
    """Say why an attack is not run; None when it is to run."""
    if one.applies is Applicability.DOES_NOT:
        return "" if is_auto else None
    if is_auto and any(before.outcome is Outcome.CERTIFIED for before in found.values()):
        return "not needed: every training input is proven already"
    return None


def _named(attacks: Sequence[Attack]) -> dict[str, Attack]:
    named: dict[str, Attack] = {}
    for attack in attacks:
        name = attack_name(type(attack))
        if name in named:
            raise ExhumeError(f"{name} is given twice; audit with one of its settings at a time.")
        named[name] = attack
    return named
