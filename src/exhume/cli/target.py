"""What a command attacks: the network of a run folder, or the user's own."""

from pathlib import Path

from exhume.cli.console import CommandConsole
from exhume.cli.own_model import OwnModel, own_view
from exhume.cli.run_folder import RunFolder
from exhume.core.errors import ExhumeError
from exhume.records import AttackerView, StartEvidence


def own_model(
    model: str | None,
    initial: list[str] | None,
    final: Path | None,
    input_shape: str | None,
    bounds: str | None,
    offset: str | None,
    trained_with: list[str] | None,
) -> OwnModel | None:
    """Gather what was said about somebody's own network; None when nothing was."""
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


def place_and_view(
    run: Path | None, out: Path | None, own: OwnModel | None, console: CommandConsole
) -> tuple[RunFolder, AttackerView, StartEvidence | None]:
    """Return where to write, what the attacker holds (the network of a run, or the owner's own), and its start."""
    if (run is None) == (own is None):
        raise ExhumeError("Name either a run folder or your own network (--model, --initial, --final, --input-shape).")
    if run is not None:
        return RunFolder(out or run), RunFolder(run).load_victim().view(), None
    if out is None:
        raise ExhumeError("Say where to write with --out.")
    assert own is not None
    with console.progress() as progress:
        view, start = own_view(own, progress)
    return RunFolder(out), view, start
