"""What a command attacks: the network of a run folder, or the user's own."""

from dataclasses import replace
from pathlib import Path

from exhume.auditing.run_folder import RunFolder
from exhume.cli.console import CommandConsole
from exhume.cli.own_model import OwnModel, own_view, parse_bounds
from exhume.core.errors import ExhumeError
from exhume.records import AttackerView, StartEvidence


def gather_own_model(
    model: str | None,
    initial: list[str] | None,
    final: Path | None,
    input_shape: str | None,
    bounds: str | None,
    offset: str | None,
    trained_with: list[str] | None,
) -> OwnModel | None:
    """Gather the options about the user's own network; None where there are none."""
    if model is None:
        if (initial, final, input_shape, offset, trained_with) != (None, None, None, None, None):
            raise ExhumeError(
                "A run folder knows its own weights; --initial, --final, --input-shape, --offset and --trained-with go "
                "with --model."
            )
        return None
    return OwnModel(
        model=model,
        initial=tuple(initial or ()),
        final=final,
        input_shape=input_shape,
        bounds=bounds,
        offset=offset,
        training=tuple(trained_with or ()),
    )


def find_target(
    run: Path | None, out: Path | None, own: OwnModel | None, bounds: str | None, console: CommandConsole
) -> tuple[RunFolder, AttackerView, StartEvidence | None]:
    """Return the folder to write to, what the attacker holds, and what is known about the initial weights.

    The network is that of a run folder, whose bounds may be stated anew, or the user's own.
    """
    if (run is None) == (own is None):
        raise ExhumeError("Name either a run folder or your own network (--model, --initial, --final, --input-shape).")
    if run is not None:
        view = RunFolder(run).load_victim().view()
        if bounds is not None:
            view = replace(view, bounds=parse_bounds(bounds, view.input_shape))
        return RunFolder(out or run), view, None
    if out is None:
        raise ExhumeError("Name the folder to write to with --out.")
    assert own is not None
    with console.progress() as progress:
        view, start = own_view(own, progress)
    return RunFolder(out), view, start
