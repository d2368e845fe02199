"""``exhume attack``: what an attacker digs out, without a look at the data."""

from pathlib import Path

from exhume.cli import options
from exhume.cli.own_model import own_view
from exhume.cli.pipeline import attack_into, choose_attacks
from exhume.cli.run_folder import RunFolder
from exhume.cli.telling import one_or_all, tell_attack
from exhume.cli.voice import speaking
from exhume.errors import ExhumeError
from exhume.evaluation import evaluate
from exhume.records import AttackerView


def attack_command(
    run: options.OptionalRun = None,
    *,
    attack: options.AttackOption = None,
    setting: options.SetOption = None,
    model: options.ModelOption = None,
    initial: options.InitialOption = None,
    final: options.FinalOption = None,
    input_shape: options.ShapeOption = None,
    bounds: options.BoundsOption = "0,1",
    offset: options.OffsetOption = None,
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
    with speaking(as_json=as_json, quiet=quiet, debug=debug) as voice:
        folder, view = place_and_view(run, out, model, initial, final, input_shape, bounds, offset)
        attacks = choose_attacks(view, attack, setting, voice)
        found = attack_into(folder, view, attacks, seed=seed, device=device, voice=voice)
        voice.give(one_or_all({name: evaluate(one, victim=view).to_json() for name, (_, one) in found.items()}))
        for place, one in found.values():
            tell_attack(voice, one)
            voice.say(f"Kept in {place.reconstruction}; for machines, {place.result}.")


def place_and_view(
    run: Path | None,
    out: Path | None,
    model: str | None,
    initial: Path | None,
    final: Path | None,
    input_shape: str | None,
    bounds: str,
    offset: str | None,
) -> tuple[RunFolder, AttackerView]:
    """Return where to write and what the attacker holds: the network of a run, or the owner's own."""
    if (run is None) == (model is None):
        raise ExhumeError("Name either a run folder or your own network (--model, --initial, --final, --input-shape).")
    if run is not None:
        if (initial, final, input_shape, offset) != (None, None, None, None):
            raise ExhumeError(
                "A run folder knows its own weights; --initial, --final, --input-shape and --offset go with --model."
            )
        return RunFolder(out or run), RunFolder(run).load_victim().view()
    if out is None:
        raise ExhumeError("Say where to write with --out.")
    assert model is not None
    view = own_view(
        model=model, initial=initial, final=final, input_shape=input_shape, bounds=bounds, offset=offset
    )  # fmt: skip
    return RunFolder(out), view
