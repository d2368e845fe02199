"""``exhume attack``: what an attacker digs out, without a look at the data."""

from pathlib import Path

from exhume.attacks import Restarted
from exhume.cli import options
from exhume.cli.console import CommandConsole, open_console
from exhume.cli.own_model import OwnModel, own_view
from exhume.cli.pipeline import attack_into, choose_attacks
from exhume.cli.run_folder import RunFolder
from exhume.cli.summaries import merge_results, print_attack, print_start
from exhume.core.errors import ExhumeError
from exhume.evaluation import evaluate
from exhume.records import AttackerView, StartEvidence


def attack_command(
    run: options.OptionalRun = None,
    *,
    attack: options.AttackOption = None,
    setting: options.SetOption = None,
    restarts: options.RestartsOption = 1,
    model: options.ModelOption = None,
    initial: options.InitialOption = None,
    final: options.FinalOption = None,
    input_shape: options.ShapeOption = None,
    bounds: options.BoundsOption = None,
    offset: options.OffsetOption = None,
    trained_with: options.TrainedWithOption = None,
    out: options.OptionalOut = None,
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Attack a network and keep what was found; no training data is read.

    One attack writes to the folder itself, several to a sub-folder each.
    """
    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        own = own_model(model, initial, final, input_shape, bounds, offset, trained_with)
        folder, view, start = place_and_view(run, out, own, console)
        print_start(console, start)
        attacks = choose_attacks(view, attack, setting, console)
        if restarts > 1:
            attacks = {name: Restarted(one, times=restarts) for name, one in attacks.items()}
        found = attack_into(folder, view, attacks, seed=seed, device=device, console=console)
        console.print_json(
            merge_results({name: evaluate(one, victim=view).to_json() for name, (_, one) in found.items()})
        )
        for place, one in found.values():
            print_attack(console, one)
            console.print(f"Kept in {place.reconstruction}; for machines, {place.result}.")


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
