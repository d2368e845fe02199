"""``exhume audit``: attack, evaluate and report in one go."""

from exhume.cli import options
from exhume.cli.attack import place_and_view
from exhume.cli.pipeline import attack_into, audit_into, choose_attacks, load_comparison
from exhume.cli.run_folder import RunFolder
from exhume.cli.telling import one_or_all, tell_audit, tell_place
from exhume.cli.voice import speaking
from exhume.devices import resolve_device


def audit_command(
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
    data: options.CompareOption = None,
    out: options.OptionalOut = None,
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Attack a network, measure what was found against its data, and write figures and a report."""
    with speaking(as_json=as_json, quiet=quiet, debug=debug) as voice:
        folder, view = place_and_view(run, out, model, initial, final, input_shape, bounds, offset)
        examples = load_comparison(data, view) if data is not None else RunFolder(run).load_data() if run else None
        attacks = choose_attacks(view, attack, setting, voice)
        found = attack_into(folder, view, attacks, seed=seed, device=device, voice=voice)
        seen = view.to(resolve_device(device))
        audits = {name: audit_into(place, one, examples, seen, voice) for name, (place, one) in found.items()}
        for name, audit in audits.items():
            tell_audit(voice, audit)
            tell_place(voice, found[name][0])
        voice.give(one_or_all({name: audit.to_json() for name, audit in audits.items()}))
