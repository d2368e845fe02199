"""``exhume distil``: a small data set to train on in place of the data, checked for copies."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.core.errors import ExhumeError
from exhume.core.text import count_noun
from exhume.models.mlp import MLP

RESULT = "distilled.json"
"""The result for programs: the method and the copies that were found."""
_method = partial(typer.Option, rich_help_panel="Distillation")
_network = partial(typer.Option, rich_help_panel=options.MODEL)


@command()
def distil_command(
    *,
    data: options.SourceOption,
    selection: options.Selection,
    method: Annotated[Literal["kip", "rkip", "rkip-finite"], _method("--method", help="Distillation method.")] = "rkip",
    distilled: Annotated[int, _method("--distilled", metavar="N", min=1, help="Number of distilled examples.")] = 20,
    labels: Annotated[
        Literal["fixed", "learned"], _method("--labels", help="Class labels, or labels that are optimised too.")
    ] = "fixed",
    noise: Annotated[
        float, _method("--noise", metavar="X", help="Fraction of input values fixed to noise, against copying.")
    ] = 0.0,
    min_distance: Annotated[
        float | None, _method("--min-distance", metavar="X", help="Smallest distance to any training example.")
    ] = None,
    coordinates: Annotated[
        Literal["values", "span"],
        _method("--coordinates", help="Optimise input values, or coordinates in the span of the data (faster)."),
    ] = "values",
    steps: Annotated[int | None, _method("--steps", metavar="N", min=1, help="Number of optimisation steps.")] = None,
    width: Annotated[
        int, _network("--width", metavar="N", min=1, help="Units per hidden layer of the network to be trained.")
    ] = 1024,
    depth: Annotated[int, _network("--depth", metavar="N", min=0, help="Number of its hidden layers.")] = 2,
    out: options.OutOption = Path("out/distilled"),
    seed: options.SeedOption = 0,
    device: options.DeviceOption = "auto",
    console: CommandConsole,
) -> None:
    """Distil a data set and report which training examples the result copies.

    If interrupted, the same command continues.
    """
    from exhume.auditing.run_folder import RunFolder
    from exhume.core.storage import write_json
    from exhume.data import load
    from exhume.distillation import KIP, RKIP, Distillation, RKIPFinite, distil
    from exhume.evaluation import find_copies
    from exhume.kernels import InfiniteNTK
    from exhume.report.distilled import draw_beside_nearest
    from exhume.report.figures import save_figure

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
    real = load(data, **vars(selection), seed=seed)
    folder = RunFolder(out)
    if folder.victim.exists() and not (folder.path / RESULT).exists():
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
        figure = draw_beside_nearest(made, real, copies)
        if figure is not None:
            save_figure(figure, folder.path / "distilled")
        result = {
            "dataset": real.name,
            "training_size": len(real.train),
            "method": repr(chosen),
            "seed": seed,
            "copies": copies.to_json(),
        }
        write_json(folder.path / RESULT, result)
        folder.remove_checkpoint("distillation")
    console.print_json(result)
    console.print(f"{made.name}, from {count_noun(len(real.train), 'example')}")
    console.print(copies.sentence, style="bold")
    console.print(f"Saved in {folder.data}; JSON in {folder.path / RESULT}.")
    console.print(f"Next: exhume train --data {folder.path}")
