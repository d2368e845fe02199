"""Printed summaries of results."""

from collections.abc import Mapping, Sequence
from typing import Any

from exhume.auditing.catalogue import shorten_settings
from exhume.auditing.run_folder import RunFolder
from exhume.auditing.start_search import LEAST_P
from exhume.cli.console import CommandConsole
from exhume.core.text import count_noun
from exhume.evaluation import verdict
from exhume.evaluation.verdict import describe_outcome
from exhume.records import Assessment, Audit, Dataset, Price, Reconstruction, StartEvidence, Victim
from exhume.report.scores import format_number, format_p_value, list_scores


def print_training(console: CommandConsole, data: Dataset, victim: Victim) -> None:
    """Print what was trained, and the result of the training."""
    result = victim.result
    steps = result.get("steps")
    way = "in closed form" if steps is None else f"in {count_noun(steps, 'step')}"
    console.print(f"{victim.architecture} on {count_noun(len(data.train), 'example')} of {data.name}")
    console.print(
        f"trained {way} to a loss of {result['loss']:.1e} and an accuracy of {result['accuracy']:.0%} "
        f"({result['seconds']:.1f} s)"
    )


def print_attack(console: CommandConsole, found: Reconstruction) -> None:
    """Print what an attack found, as far as the attacker knows."""
    certified = int(found.certified.sum())
    proven = f", {certified} of them certified" if certified else ""
    console.print(shorten_settings(found.attack))
    console.print(f"{describe_outcome(found)}: {count_noun(len(found), 'candidate')}{proven} ({found.seconds:.1f} s)")
    if found.message:
        console.print(found.message)


def print_start(console: CommandConsole, start: StartEvidence | None) -> None:
    """Print the evidence for the initial weights, where there is any."""
    if start is None:
        return
    best = start.best
    tried = f", the likeliest of {start.tried} tried" if start.tried > 1 else ""
    console.note(
        f"initial weights: {best.name}{tried}; the weights moved by {best.distance:.1%} and correlate with it by "
        f"{best.correlation:.3f} ({format_p_value(0.0 if best.log10_p <= LEAST_P else 10**best.log10_p)})"
    )
    if not start.is_clear:
        console.note(f"The final weights do not seem to come from {best.name}.")
    if start.stand_ins:
        console.note(f"The initial weights have no {', '.join(start.stand_ins[:3])}; the final weights replace them.")


def print_assessments(console: CommandConsole, assessments: Sequence[Assessment]) -> None:
    """Print which attacks apply, and which of them ran."""
    for one in assessments:
        fate = f"; {one.fate}" if one.fate else ""
        why = f": {' '.join(one.reasons)}" if one.reasons else ""
        console.note(f"{one.attack} {one.applies.value}{fate}{why}")


def print_audit(console: CommandConsole, audit: Audit) -> None:
    """Print what each attack found, with held-out counts beside each count, and the verdict last."""
    result = verdict(audit)
    for evaluation in audit.evaluations.values():
        print_attack(console, evaluation.found)
        rows = [(score.name, score.trained, score.held_out, score.chance) for score in list_scores(evaluation)]
        if rows:
            console.print("")
            console.print_table(("", "trained on", "held out", "by chance"), rows)
        console.print("")
    print_prices(console, audit.prices)
    console.print(result.sentence, style="bold")
    console.print(result.detail)


def print_prices(console: CommandConsole, prices: Sequence[Price]) -> None:
    """Print the cost and effect of changes before release, where they were measured."""
    if not prices:
        return
    console.print("Cost and effect of changes before release, measured on this network:")
    rows = [
        (
            price.change,
            "–" if price.accuracy is None else f"{price.accuracy:.1%}",
            format_number(price.recovered),
            format_number(price.certified),
            price.note,
        )
        for price in prices
    ]
    console.print_table(("weights", "test accuracy", "recovered", "certified", ""), rows)
    console.print("")


def print_files(console: CommandConsole, folder: RunFolder, audit: Audit) -> None:
    """Print where the report is, and a warning if it shows training examples."""
    has_candidates = any(len(evaluation.found) for evaluation in audit.evaluations.values())
    care = " Both may show training examples: share them only as you would share the data." if has_candidates else ""
    console.print(f"Report: {folder.report}; as JSON: {folder.audit}.{care}")


def merge_results(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a single result as it is, or several by the name of their attack."""
    if len(results) == 1:
        return dict(next(iter(results.values())))
    return {"attacks": {name: dict(result) for name, result in results.items()}}
