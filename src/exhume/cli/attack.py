"""``exhume attack``: run attacks without reading any data."""

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole


@command()
def attack_command(
    run: options.OptionalRun = None,
    *,
    attack: options.AttackOption = None,
    setting: options.SetOption = None,
    restarts: options.RestartsOption = 1,
    own: options.OwnModel,
    out: options.OptionalOut = None,
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Attack a network and keep the results; no training data is read.

    One attack writes to the folder itself, several write to a sub-folder each.
    """
    from exhume.attacks import Restarted
    from exhume.cli.pipeline import attack_into, choose_attacks
    from exhume.cli.summaries import merge_results, print_attack, print_start
    from exhume.cli.target import find_target
    from exhume.evaluation import evaluate

    folder, view, start = find_target(run, out, own, console)
    print_start(console, start)
    attacks = choose_attacks(view, attack, setting, console)
    if restarts > 1:
        attacks = {name: Restarted(one, times=restarts) for name, one in attacks.items()}
    found = attack_into(folder, view, attacks, seed=seed, device=device, console=console)
    console.print_json(merge_results({name: evaluate(one, victim=view).to_json() for name, (_, one) in found.items()}))
    for place, one in found.values():
        print_attack(console, one)
        console.print(f"Kept in {place.reconstruction}; as JSON in {place.result}.")
