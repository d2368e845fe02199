"""``exhume audit``: run the attacks that apply, evaluate them and report, in one command, also for CI pipelines."""

import typer

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.cli.invocation import format_invocation

CONDITION_MET, UNTESTED = 1, 3
"""Exit codes: a condition of --fail-if is met; no attack applies or finished, so nothing is known."""


@command()
def audit_command(
    run: options.OptionalRun = None,
    *,
    attack: options.AuditAttackOption = None,
    setting: options.SetOption = None,
    budget: options.BudgetOption = None,
    own: options.OwnModel,
    train_data: options.TrainDataOption = None,
    holdout: options.HoldoutOption = None,
    data: options.CompareOption = None,
    defences: options.DefencesOption = False,
    fail_if: options.FailIfOption = None,
    junit: options.JunitOption = None,
    sarif: options.SarifOption = None,
    out: options.OptionalOut = None,
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Attack a network with everything that applies, evaluate the results, and write a report.

    Exits with 0, with 1 if a condition of --fail-if is met, with 2 on bad input, with 3 if nothing could be tested.
    After a crash or Ctrl-C, the same command continues.
    """
    from exhume.auditing import Condition, audit_to_json, write_junit, write_sarif
    from exhume.auditing.orchestrator import run_audit
    from exhume.cli.attack_settings import build_all_attacks, build_attacks
    from exhume.cli.pipeline import load_examples, parse_names, write_audit
    from exhume.cli.summaries import print_assessments, print_audit, print_files, print_start
    from exhume.cli.target import find_target

    conditions = [Condition.read(text) for text in fail_if or ()]
    names = parse_names(attack)
    attacks = build_attacks(names, setting or ()) if names else build_all_attacks(setting or ())
    folder, view, start = find_target(run, out, own, console)
    examples = load_examples(view, run, data, train_data, holdout)
    for condition in conditions:
        condition.check(examples)  # before long work
    print_start(console, start)
    audited = run_audit(
        view,
        examples,
        attacks,
        is_auto=not names,
        budget=budget,
        seed=seed,
        device=device,
        observer=console,
        folder=folder,
        start=start,
        with_prices=defences,
        notes={"command": format_invocation(), "model": own.model or str(run)},
    )
    write_audit(folder, audited)
    print_assessments(console, audited.assessments)
    print_audit(console, audited)
    print_files(console, folder, audited)
    console.print_json(audit_to_json(audited))
    met = {condition: condition.is_met(audited) for condition in conditions}
    if junit is not None:
        write_junit(junit, audited, met)
    if sarif is not None:
        write_sarif(sarif, audited, met, str(own.final or own.checkpoint or folder.path))
    for condition in (condition for condition, is_met in met.items() if is_met):
        console.note(f"The condition {condition.text!r} is met.")
    if any(met.values()):
        raise typer.Exit(CONDITION_MET)
    if not audited.evaluations and not audited.tokens:
        console.note(
            "Where an attack needs a setting, give it with --set (--set weight-difference.candidates=60); where it "
            "needs a fact about the training, with --trained-with (--trained-with loss=ce)."
        )
        raise typer.Exit(UNTESTED)
