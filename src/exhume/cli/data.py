"""``exhume data``: which sources there are, how to get them, and what a draw from one looks like."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.console import open_console

app = typer.Typer(help="List, fetch and look at data.", no_args_is_help=True)

OutOption = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A folder to keep the result in.")]


@app.command("list")
def list_sources(
    *,
    data_dir: options.DataDirOption = None,
    out: OutOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """List the known sources and whether each is here."""
    from exhume.auditing.run_folder import RunFolder
    from exhume.core.storage import write_json
    from exhume.data import available

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        sources = available(data_dir)
        result = {"sources": [vars(source) for source in sources]}
        if out is not None:
            with RunFolder(out).open():
                write_json(out / "sources.json", result)
        console.print_table(
            ("source", "what", "where"), [(source.name, source.description, source.location) for source in sources]
        )
        console.print_json(result)


@app.command("fetch")
def fetch_source(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A source from 'exhume data list'.")],
    *,
    data_dir: options.DataDirOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to download to, like --data-dir.")
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Download a source from its publisher and check it against the published checksums."""
    from exhume.data import fetch

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        with console.progress() as progress:
            folder = fetch(name, out or data_dir, progress)
        console.print(f"{name} is in {folder}.")
        console.print_json({"source": name, "folder": str(folder)})


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A known source, an .npz or .csv file, or a folder.")],
    *,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    test: options.TestOption = None,
    label: options.LabelOption = None,
    centre: options.CentreOption = True,
    data_dir: options.DataDirOption = None,
    out: OutOption = None,
    seed: options.SeedOption = 0,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    debug: options.DebugOption = False,
) -> None:
    """Say what training, held-out and test examples would be drawn; with --out, keep them in data.safetensors."""
    from exhume.auditing.run_folder import RunFolder
    from exhume.core.json_values import to_json_value
    from exhume.data import load

    with open_console(as_json=as_json, quiet=quiet, debug=debug) as console:
        data = load(
            name, classes=classes, size=size, test=test, seed=seed, centre=centre, label=label, data_dir=data_dir
        )
        splits = {"train": data.train, "holdout": data.holdout, "test": data.test}
        labels = [[] if split is None else split.labels.tolist() for split in splits.values()]
        counts = {kind: [drawn.count(index) for drawn in labels] for index, kind in enumerate(data.classes)}
        result = {
            "dataset": data.name,
            "input_shape": data.input_shape,
            "bounds": data.bounds,
            "offset": data.offset,
            "features": data.features,
            "classes": {kind: dict(zip(splits, numbers, strict=True)) for kind, numbers in counts.items()},
        }
        if out is not None:
            folder = RunFolder(out)
            with folder.open():
                data.save(folder.data)
        console.print(f"{data.name}: inputs of {' × '.join(map(str, data.input_shape))}")
        console.print_table(
            ("class", "train", "held out", "test"), [(kind, *map(str, numbers)) for kind, numbers in counts.items()]
        )
        console.print_json({key: to_json_value(value) for key, value in result.items()})
