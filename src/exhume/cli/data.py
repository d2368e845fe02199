"""``exhume data``: list, download and inspect data sources."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli import options
from exhume.cli.command import command
from exhume.cli.console import CommandConsole
from exhume.cli.plain_help import PlainCommand, PlainGroup

app = typer.Typer(cls=PlainGroup, help="List, download and inspect data.", no_args_is_help=True)

OutOption = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A folder to save the result to.")]


@app.command("list", cls=PlainCommand)
@command()
def list_sources(
    *,
    data_dir: options.DataDirOption = None,
    out: OutOption = None,
    console: CommandConsole,
) -> None:
    """List the known sources and where each is stored."""
    from exhume.auditing.run_folder import RunFolder
    from exhume.core.storage import write_json
    from exhume.data import available

    sources = available(data_dir)
    result = {"sources": [vars(source) for source in sources]}
    if out is not None:
        with RunFolder(out).open():
            write_json(out / "sources.json", result)
    console.print_table(
        ("source", "what", "where"), [(source.name, source.description, source.location) for source in sources]
    )
    console.print_json(result)


@app.command("fetch", cls=PlainCommand)
@command()
def fetch_source(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A source from 'exhume data list'.")],
    *,
    data_dir: options.DataDirOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to download to, like --data-dir.")
    ] = None,
    console: CommandConsole,
) -> None:
    """Download a source from its publisher and verify its checksums."""
    from exhume.data import fetch

    with console.progress() as progress:
        folder = fetch(name, out or data_dir, progress)
    console.print(f"{name} is in {folder}.")
    console.print_json({"source": name, "folder": str(folder)})


@app.command("show", cls=PlainCommand)
@command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A known source, an .npz or .csv file, or a folder.")],
    *,
    selection: options.Selection,
    test: options.TestOption = None,
    out: OutOption = None,
    seed: options.SeedOption = 0,
    console: CommandConsole,
) -> None:
    """Show which training, held-out and test examples would be drawn; with --out, save them as data.safetensors."""
    from exhume.auditing.run_folder import RunFolder
    from exhume.core.json_values import to_json_value
    from exhume.data import load

    data = load(name, **vars(selection), test=test, seed=seed)
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
