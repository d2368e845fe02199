"""Run an audit: check the input, run the attacks that apply within a budget, cheapest first, and evaluate them.

:func:`exhume.audit` and ``exhume audit`` both call :func:`run_audit`, so they share checks, defaults and messages.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from exhume.attacks.attack import Attack
from exhume.auditing.applicability import assess
from exhume.auditing.budget import Budget, default_minutes
from exhume.auditing.catalogue import attack_name, known_attacks
from exhume.auditing.kept_results import is_result_of, run_or_reuse
from exhume.auditing.observer import Observer, SilentObserver
from exhume.auditing.prices import price_defences
from exhume.auditing.run_folder import RunFolder
from exhume.auditing.swapped_weights import describe_swap
from exhume.auditing.token_audit import audit_tokens
from exhume.auditing.training_size import give_size
from exhume.core.devices import resolve_device
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import OutOfTime
from exhume.core.text import first_sentence, format_duration
from exhume.evaluation import evaluate, lead
from exhume.evaluation.data_checks import check_data
from exhume.evaluation.network import threat_model
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
    takes_token_ids,
)
from exhume.records.audit import FAILED

RAN = "ran"
NOT_NEEDED = "not needed: every training input is proven already"
STOPPED = "stopped when its share of the budget was spent; a larger budget continues from there"
PARTIAL = "stopped at {done:.0%}{stage} when its share of the budget was spent{needed}; what it had found is evaluated"
NOT_RUN = "not run: the budget was spent"

RunOne = Callable[[str, Attack, float], Reconstruction]
"""Runs an attack by its name for at most so many seconds, or returns its kept result, which takes no time.

Raises :class:`OutOfTime` when the seconds do not suffice."""


def audit(
    view: AttackerView,
    data: Dataset | None = None,
    *,
    attacks: Sequence[Attack] | None = None,
    budget: float | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    folder: Path | str | None = None,
    start: StartEvidence | None = None,
    with_prices: bool = False,
) -> Audit:
    """Attack a network with everything that applies, and measure what was found.

    Args:
        view: what the attacker holds: your own module and weights, or ``victim.view()``.
        data: the data the network was trained on and held-out examples that it was not trained on, to check every claim
            against; without it the audit holds what the attacker can prove, and no score that needs the truth.
        attacks: the attacks to run; None runs every known one that applies, the cheapest first, until every training
            input is proven or the budget is spent.
        budget: minutes for all attacks together; an attack stops at its next progress report after that. None: 10
            minutes where ``attacks`` is None, no limit for attacks that were asked for. ``math.inf``: no limit.
        seed: fixes every random choice.
        device: ``auto`` takes a GPU when there is one.
        progress: a progress callback.
        folder: where to keep finished attacks and the state of unfinished ones; the same call continues from there.
        start: what the search for the initial weights found, to be shown in the report.
        with_prices: whether to measure also what rounding and noise before release would cost and save, within the same
            budget once more.

    Returns:
        An :class:`~exhume.records.Audit`, for :func:`exhume.report`, :func:`exhume.verdict`, or
        :func:`exhume.auditing.audit_to_json`.

    Raises:
        DataError: when the data does not fit the network, or its hold-out set was trained on.
        ExhumeError: when the model does not take inputs of the view's shape, or does not return a tensor.
        Refusal: when an attack that was asked for does not apply.
    """
    return run_audit(
        view,
        data,
        {name: kind() for name, kind in known_attacks().items()} if attacks is None else _by_name(attacks),
        is_auto=attacks is None,
        budget=budget,
        seed=seed,
        device=device,
        observer=SilentObserver(progress),
        folder=None if folder is None else RunFolder(Path(folder)),
        start=start,
        with_prices=with_prices,
    )


def run_audit(
    view: AttackerView,
    data: Dataset | None,
    attacks: Mapping[str, Attack],
    *,
    is_auto: bool,
    budget: float | None,
    seed: int,
    device: str | torch.device,
    observer: Observer,
    folder: RunFolder | None,
    start: StartEvidence | None,
    with_prices: bool,
    notes: Mapping[str, Any] | None = None,
) -> Audit:
    """Run attacks by name as :func:`audit` does, and report to an observer.

    With ``is_auto`` the attacks were chosen automatically: those that do not apply are skipped, and the rest too once
    every training input is proven. ``notes`` say what else it takes to repeat the audit.
    """
    if takes_token_ids(view.model, view.input_shape):
        return audit_tokens(view, data, attacks, start, notes or {})
    count_outputs(view.model, view.input_shape)  # refuses models that cannot be audited
    if data is not None:
        check_data(view, data)
    warning = describe_swap(view, data)
    if warning is not None:
        observer.note(warning)
    minutes = default_minutes(is_auto=is_auto) if budget is None else budget
    view, attacks, remarks = give_size(view, attacks, data)

    def run_one(name: str, attack: Attack, seconds: float) -> Reconstruction:
        if folder is not None:
            place = RunFolder(folder.path / name)
            return run_or_reuse(
                name,
                attack,
                view,
                folder=place,
                seed=seed,
                device=device,
                observer=observer,
                seconds=seconds,
                keep_partial=True,
            )
        if seconds <= 0:
            raise OutOfTime("The budget is spent.")
        with observer.progress() as progress:
            return attack.run(view, seed=seed, device=device, progress=progress, seconds=seconds, keep_partial=True)

    with nullcontext() if folder is None else folder.open():
        found, assessments = run_attacks(
            view, attacks, run_one, is_auto=is_auto, budget=Budget.start(minutes), remarks=remarks
        )
        if folder is not None:
            _clear_results_of_other_views(folder, view, known_attacks().keys() - found.keys())
    on_device = view.to(resolve_device(device))
    audited = Audit(
        evaluations={name: evaluate(one, data, victim=on_device) for name, one in found.items()},
        assessments=assessments,
        given=threat_model(view),
        start=start,
        notes={**(notes or {}), **({} if warning is None else {"warning": warning})},
    )
    first = lead(audited)
    if not with_prices or first is None:
        return audited
    with observer.progress() as progress:
        prices = price_defences(
            view,
            data,
            attacks[first],
            as_trained=None if "stopped_at" in found[first].diagnostics else audited.evaluations[first],
            budget=minutes,
            seed=seed,
            device=device,
            progress=progress,
        )
    return replace(audited, prices=prices)


def run_attacks(
    view: AttackerView,
    attacks: Mapping[str, Attack],
    run_one: RunOne,
    *,
    is_auto: bool,
    budget: Budget,
    remarks: Mapping[str, str] | None = None,
) -> tuple[dict[str, Reconstruction], tuple[Assessment, ...]]:
    """Run attacks, the cheapest first, and return their results and what became of each attack.

    ``remarks`` are further caveats by the name of the attack.

    Raises:
        Refusal: when an attack that was asked for does not apply; before any runs, where that can be seen.
    """
    planned = [_with_remark(one, (remarks or {}).get(one.attack)) for one in assess(view, attacks)]
    if not is_auto:
        for attack in attacks.values():
            attack.check(view)
    found: dict[str, Reconstruction] = {}
    assessments: list[Assessment] = []
    for number, one in enumerate(planned):
        skipped = _why_skipped(one, found) if is_auto else None
        if skipped is not None:
            assessments.append(replace(one, fate=skipped))
            continue
        seconds = budget.seconds_left()
        others_apply = any(other.applies is not Applicability.DOES_NOT for other in planned[number + 1 :])
        if is_auto and one.applies is Applicability.WITH_CAVEATS and others_apply:
            seconds /= 2  # it may fail, so the attacks after it get a share
        try:
            found[one.attack] = run_one(one.attack, attacks[one.attack], seconds)
        except OutOfTime:
            assessments.append(replace(one, fate=STOPPED if seconds > 0 else NOT_RUN))
        except Refusal as refusal:
            if not is_auto:
                raise
            assessments.append(replace(one, applies=Applicability.DOES_NOT, reasons=(str(refusal),)))
        except ExhumeError:
            raise
        except Exception as error:  # a bug in one attack must not cost the results of the others
            if not is_auto:
                raise
            fate = f"{FAILED} ({type(error).__name__}: {first_sentence(error)})"
            assessments.append(replace(one, fate=fate))
        else:
            assessments.append(replace(one, fate=_describe_end(found[one.attack])))
    return found, tuple(assessments)


def _with_remark(one: Assessment, remark: str | None) -> Assessment:
    """Return an assessment with one more caveat, where there is one and the attack applies."""
    if remark is None or one.applies is Applicability.DOES_NOT:
        return one
    return replace(one, applies=Applicability.WITH_CAVEATS, reasons=(remark, *one.reasons))


def _describe_end(found: Reconstruction) -> str:
    """Return whether an attack ran to its end, and otherwise how long it would take."""
    done, needed = found.diagnostics.get("stopped_at"), found.diagnostics.get("seconds_needed")
    if done is None:
        return RAN
    later = found.diagnostics.get("stages_left", 0)
    about = "more than" if later else "about"
    words = "" if needed is None else f"; all of it takes {about} {format_duration(needed)} here"
    return PARTIAL.format(done=done, stage=" of a stage" if later else "", needed=words)


def _why_skipped(one: Assessment, found: Mapping[str, Reconstruction]) -> str | None:
    """Return why an automatic audit skips an attack; empty where its assessment has the reason, None where it runs."""
    if one.applies is Applicability.DOES_NOT:
        return ""
    is_proven = any(before.outcome is Outcome.CERTIFIED for before in found.values())
    return NOT_NEEDED if is_proven else None


def _clear_results_of_other_views(folder: RunFolder, view: AttackerView, names: set[str]) -> None:
    for name in names:
        place = RunFolder(folder.path / name)
        if not is_result_of(place, view):
            place.clear_attack()


def _by_name(attacks: Sequence[Attack]) -> dict[str, Attack]:
    named: dict[str, Attack] = {}
    for attack in attacks:
        name = attack_name(type(attack))
        if name in named:
            raise ExhumeError(f"{name} is given twice; audit with one of its settings at a time.")
        named[name] = attack
    return named
