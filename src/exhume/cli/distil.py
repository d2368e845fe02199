"""``exhume distil``: a small set to train on in place of the data, and what it copies of them."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from exhume.cli import options
from exhume.cli.console import open_console
from exhume.cli.options import DATA, MODEL
from exhume.core.errors import ExhumeError
from exhume.core.text import count_noun
from exhume.models.mlp import MLP

METHOD = "Distillation"
ACCOUNT = "distilled.json"
"""What was made and what it copies, for machines."""


def distil_command(
    *,
    data: Annotated[
        str, typer.Option("--data", help="A known source, an .npz or .csv file, or a folder.", rich_help_panel=DATA)
    ],
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    label: options.LabelOption = None,
    centre: options.CentreOption = True,
    data_dir: options.DataDirOption = None,
    method: Annotated[
        Literal["kip", "rkip", "rkip-finite"], typer.Option(help="What to minimise.", rich_help_panel=METHOD)
    ] = "rkip",
    distilled: Annotated[int, typer.Option(min=1, help="Examples to make.", rich_help_panel=METHOD)] = 20,
    labels: Annotated[
        Literal["fixed", "learned"], typer.Option(help="Plain labels, or optimised ones.", rich_help_panel=METHOD)
    ] = "fixed",
    noise: Annotated[
        float, typer.Option(help="The fraction of values fixed to noise, against copying.", rich_help_panel=METHOD)
    ] = 0.0,
    min_distance: Annotated[
        float | None, typer.Option(help="The least distance to any training example.", rich_help_panel=METHOD)
    ] = None,
    coordinates: Annotated[
        Literal["values", "span"],
        typer.Option(help="What to search in; the span of the data takes less time.", rich_help_panel=METHOD),
    ] = "values",
    steps: Annotated[int | None, typer.Option(min=1, help="Of the optimisation.", rich_help_panel=METHOD)] = None,
    width: Annotated[
        int, typer.Option(min=1, help="Units a layer of the network to be trained.", rich_help_panel=MODEL)
    ] = 1024,
    depth: Annotated[int, typer.Option(min=0, help="Its hidden layers.", rich_help_panel=MODEL)] = 2,
    out: options.OutOption = Path("out/distilled"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Distil a data set and say which training examples the result copies.

    Interrupted, the same command continues.
    """
    from exhume.auditing.run_folder import RunFolder
    from exhume.core.storage import write_json
    from exhume.data import load
    from exhume.distillation import KIP, RKIP, Distillation, RKIPFinite, distil
    from exhume.evaluation import find_copies
    from exhume.kernels import InfiniteNTK
    from exhume.report.distilled import beside_nearest
    from exhume.report.figures import save_figure

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        model = MLP(width=width, depth=depth)
        settings: dict[str, Any] = {
            "labels": labels,
            "noise": noise,
            "min_distance": min_distance,
            "coordinates": coordinates,
        }
        given: dict[str, Any] = {} if steps is None else {"steps": steps}
        chosen: Distillation
        if method == "rkip-finite":
            if settings != {"labels": "fixed", "noise": 0.0, "min_distance": None, "coordinates": "values"}:
                raise ExhumeError(
                    "rkip-finite takes neither --labels, --noise, --min-distance nor --coordinates; choose rkip or kip."
                )
            finite = RKIPFinite(size=distilled, model=model)
            chosen = replace(finite, attack=replace(finite.attack, **given))
        else:
            kind = {"kip": KIP, "rkip": RKIP}[method]
            chosen = kind(size=distilled, kernel=InfiniteNTK.of(model), **settings, **given)
        real = load(data, classes=classes, size=size, label=label, centre=centre, data_dir=data_dir, seed=seed)
        folder = RunFolder(out)
        if folder.victim.exists() and not (folder.path / ACCOUNT).exists():
            raise ExhumeError(
                f"{out} holds a network and the data it was trained on, which a distilled set would replace; choose "
                "another --out."
            )
        checkpoint = folder.checkpoint("distillation")
        with folder.open():
            with console.progress(checkpoint) as progress:
                made = distil(real, chosen, seed=seed, device=device, progress=progress, checkpoint=checkpoint)
            copies = find_copies(made, real)
            made.save(folder.data)
            figure = beside_nearest(made, real, copies)
            if figure is not None:
                save_figure(figure, folder.path / "distilled")
            account = {
                "dataset": real.name,
                "training_size": len(real.train),
                "method": repr(chosen),
                "seed": seed,
                "copies": copies.to_json(),
            }
            write_json(folder.path / ACCOUNT, account)
            folder.remove_checkpoint("distillation")
        console.print_json(account)
        console.print(f"{made.name}, from {count_noun(len(real.train), 'example')}")
        console.print(copies.sentence, style="bold")
        console.print(f"Kept in {folder.data}; for machines, {folder.path / ACCOUNT}.")
        console.print(f"Next: exhume train --data {folder.path}")
