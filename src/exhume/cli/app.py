"""The ``exhume`` command: what it offers, and how it ends."""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from exhume.cli import attack, audit, data, demo, distil, evaluate, reproduce, sweep, train
from exhume.cli.invocation import called_with
from exhume.core.text import first_sentence
from exhume.version import __version__

BAD_INPUT = 2
"""The exit code of whatever a person can mend: a wrong option, a wrong file, a model that an attack does not fit."""

FAULT = 70
"""The exit code of an error in exhume itself, which Python would leave with 1: to pipelines that is a finding."""

UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
"""What typer raises for options it cannot read; versions differ in where they keep it."""

app = typer.Typer(
    name="exhume",
    help="Can somebody dig the training data out of these weights? Recover, certify, report.",
    epilog="Audit models that you own or may test.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command("train")(train.train_command)
app.command("attack")(attack.attack_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("audit")(audit.audit_command)
app.command("distil")(distil.distil_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("sweep")(sweep.sweep_command)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"exhume {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def exhume(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Can somebody dig the training data out of these weights? Recover, certify, report."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 when done, 1 when a condition of an audit is met or tasks of a sweep failed, 2 for bad input, 3 when an audit
    could test nothing, 70 for an error in exhume itself, 130 after Ctrl-C.
    """
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        with called_with(given):
            status = app(args=given, prog_name="exhume", standalone_mode=False)
    except UsageError as error:
        if str(error):  # no arguments at all are a wish for help, which typer has printed by now
            print(f"exhume: {_sentence(error)}", file=sys.stderr)
        return BAD_INPUT
    except typer.Abort:  # how older versions of typer pass on Ctrl-C
        return 130
    except Exception as error:
        traceback.print_exc()
        print(
            f"exhume: This is an error in exhume itself ({type(error).__name__}: {first_sentence(error)}); please "
            "report it with the lines above. What was finished is kept.",
            file=sys.stderr,
        )
        return FAULT
    return status if isinstance(status, int) else 0


def _sentence(error: BaseException) -> str:
    """Return what typer has to say as one line."""
    said = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    hint = f" Try '{context.command_path} --help'." if context is not None else ""
    return " ".join(said.split()).rstrip(".") + "." + hint
