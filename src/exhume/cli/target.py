"""Find what a command attacks: the network of a run folder, or the user's own."""

from dataclasses import replace
from pathlib import Path

from exhume.auditing.run_folder import RunFolder
from exhume.cli.console import CommandConsole
from exhume.cli.options import OwnModel
from exhume.cli.own_model import build_view, parse_bounds
from exhume.core.errors import ExhumeError
from exhume.records import AttackerView, StartEvidence


def find_target(
    run: Path | None, out: Path | None, own: OwnModel, console: CommandConsole
) -> tuple[RunFolder, AttackerView, StartEvidence | None]:
    """Return the folder to write to, what the attacker holds, and what is known about the initial weights.

    The network is that of a run folder, whose bounds may be stated anew, or the user's own.
    """
    weights = (own.initial, own.final, own.checkpoint, own.gradient)
    others = (*weights, own.input_shape, own.offset, own.training_size, own.trained_with)
    if own.model is None and any(one is not None for one in others):
        raise ExhumeError(
            "A run folder knows its own weights; --initial, --final, --checkpoint, --gradient, --input-shape, "
            "--offset, --training-size and --trained-with go with --model."
        )
    if (run is None) == (own.model is None):
        raise ExhumeError("Name either a run folder or your own network (--model, --initial, --final, --input-shape).")
    if run is not None:
        view = RunFolder(run).load_victim().view()
        if own.bounds is not None:
            view = replace(view, bounds=parse_bounds(own.bounds, view.input_shape))
        return RunFolder(out or run), view, None
    if out is None:
        raise ExhumeError("Name the folder to write to with --out.")
    with console.progress() as progress:
        view, start = build_view(own, progress, console.note)
    return RunFolder(out), view, start
