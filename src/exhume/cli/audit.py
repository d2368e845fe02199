"""``exhume audit``: attack with all that applies, evaluate and report in one go, for people and for pipelines."""

from dataclasses import replace
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.console import open_console
from exhume.cli.invocation import invocation

CONDITION_MET, UNTESTED = 1, 3
"""Exit codes: a pipeline's condition is met; no attack applies or came to an end, so nothing is known."""


def audit_command(
    run: options.OptionalRun = None,
    *,
    attack: options.AuditAttackOption = None,
    setting: options.SetOption = None,
    budget: options.BudgetOption = None,
    model: options.ModelOption = None,
    initial: options.InitialOption = None,
    final: options.FinalOption = None,
    input_shape: options.ShapeOption = None,
    bounds: options.BoundsOption = None,
    offset: options.OffsetOption = None,
    trained_with: options.TrainedWithOption = None,
    train_data: options.TrainDataOption = None,
    holdout: options.HoldoutOption = None,
    data: options.CompareOption = None,
    defences: Annotated[
        bool,
        typer.Option(
            "--defences",
            help="Also measure what rounding and noise before release would cost and save; takes --budget once more.",
        ),
    ] = False,
    fail_if: options.FailIfOption = None,
    junit: options.JunitOption = None,
    out: options.OptionalOut = None,
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Attack a network with all that applies, measure what was found, and write a verdict to hand over.

    Exits with 0, with 1 if a condition of --fail-if is met, with 2 on bad input, with 3 if nothing could be tested.
    Killed or interrupted, the same command continues.
    """
    from exhume.attacks.attack import Attack
    from exhume.auditing import Condition, audit_to_json, price_defences, write_junit
    from exhume.auditing.catalogue import known_attacks
    from exhume.auditing.kept_results import is_result_of
    from exhume.auditing.measuring import measured
    from exhume.auditing.orchestrator import BUDGET_MINUTES, conduct
    from exhume.cli.attack_settings import build_all_attacks, build_attacks
    from exhume.cli.pipeline import audit_into, find_examples, named, run_in
    from exhume.cli.run_folder import RunFolder
    from exhume.cli.summaries import print_assessments, print_audit, print_files, print_start
    from exhume.cli.target import own_model, place_and_view
    from exhume.core.devices import resolve_device
    from exhume.evaluation import lead
    from exhume.records import Audit, Reconstruction

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        conditions = [Condition.read(text) for text in fail_if or ()]
        own = own_model(model, initial, final, input_shape, bounds, offset, trained_with)
        wanted = named(attack)
        attacks = build_attacks(wanted, setting or ()) if wanted else build_all_attacks(setting or ())
        folder, view, start = place_and_view(run, out, own, console)
        examples = find_examples(view, run, data, train_data, holdout)
        for condition in conditions:
            condition.check(examples)  # before attacks take their time
        print_start(console, start)

        def run_one(name: str, one: Attack, seconds: float) -> Reconstruction:
            place = RunFolder(folder.path / name)
            return run_in(place, name, one, view, seed=seed, device=device, console=console, seconds=seconds)

        is_auto, limit = not wanted, budget if budget is not None or wanted else BUDGET_MINUTES
        with folder.open():
            found, assessments = conduct(view, attacks, run_one, is_auto=is_auto, budget=limit)
            for name in known_attacks().keys() - found.keys():
                place = RunFolder(folder.path / name)
                if not is_result_of(place.reconstruction, view):  # left by an audit of another network
                    place.clear_attack()
        print_assessments(console, assessments)
        seen = view.to(resolve_device(device))
        audited = Audit(
            evaluations={name: measured(one, examples, seen) for name, one in found.items()},
            assessments=assessments,
            start=start,
            notes={"command": invocation()},
        )
        first = lead(audited)
        if defences and first is not None:
            with console.progress() as progress:
                again = attacks[first]
                measures = price_defences(
                    view, examples, again, budget=limit, seed=seed, device=device, progress=progress
                )
            audited = replace(audited, prices=measures)
        audit_into(folder, audited)
        print_audit(console, audited)
        print_files(console, folder, audited)
        console.print_json(audit_to_json(audited))
        met = {condition: condition.is_met(audited) for condition in conditions}
        if junit is not None:
            write_junit(junit, audited, met)
        for condition in (condition for condition, is_met in met.items() if is_met):
            console.note(f"The condition {condition.text!r} is met.")
        if any(met.values()):
            raise typer.Exit(CONDITION_MET)
        if not audited.evaluations:
            console.note(
                "What an attack asks to be set, --set sets (--set weight-difference.candidates=60); what is known of "
                "the training, --trained-with tells (--trained-with loss=ce)."
            )
            raise typer.Exit(UNTESTED)
