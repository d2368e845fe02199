"""The ``exhume`` command: its sub-commands and exit codes."""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from exhume.cli import attack, audit, data, demo, distil, evaluate, reproduce, sweep, train
from exhume.cli.console import BAD_INPUT, INTERRUPTED
from exhume.cli.invocation import remember_arguments
from exhume.cli.plain_help import PlainCommand, PlainGroup
from exhume.core.text import first_sentence
from exhume.version import __version__

INTERNAL_ERROR = 70
"""Exit code of an error in exhume itself; Python's own would be 1, which pipelines take for a finding."""

UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
"""What typer raises for options it cannot read; its module depends on the version of typer."""

app = typer.Typer(
    name="exhume",
    cls=PlainGroup,
    epilog="Audit models that you own or may test.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo", cls=PlainCommand)(demo.demo)
app.add_typer(data.app, name="data")
app.command("train", cls=PlainCommand)(train.train_command)
app.command("attack", cls=PlainCommand)(attack.attack_command)
app.command("evaluate", cls=PlainCommand)(evaluate.evaluate_command)
app.command("audit", cls=PlainCommand)(audit.audit_command)
app.command("distil", cls=PlainCommand)(distil.distil_command)
app.command("reproduce", cls=PlainCommand)(reproduce.reproduce_command)
app.command("sweep", cls=PlainCommand)(sweep.sweep_command)


def _print_version(is_asked: bool) -> bool:
    if is_asked:
        typer.echo(f"exhume {__version__}")
        raise typer.Exit
    return is_asked


@app.callback()
def exhume(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", metavar="", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Recover training data from the weights of a neural network, prove it, and report it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: success; 1: a condition of an audit is met, or tasks of a sweep failed; 2: bad input; 3: an audit could test
    nothing; 70: an error in exhume itself; 130: Ctrl-C.
    """
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        with remember_arguments(given):
            status = app(args=given, prog_name="exhume", standalone_mode=False)
    except UsageError as error:
        if str(error):  # without any arguments, typer has printed the help already
            print(f"exhume: {_describe_usage_error(error)}", file=sys.stderr)
        return BAD_INPUT
    except typer.Abort:  # raised by older versions of typer after Ctrl-C
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(
            f"exhume: This is an error in exhume itself ({type(error).__name__}: {first_sentence(error)}); please "
            "report it with the traceback above. Finished work is kept.",
            file=sys.stderr,
        )
        return INTERNAL_ERROR
    return status if isinstance(status, int) else 0


def _describe_usage_error(error: BaseException) -> str:
    """Return the message of a usage error as one line."""
    message = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    hint = f" Try '{context.command_path} --help'." if context is not None else ""
    sentence = " ".join(message.split()).rstrip(".")
    return sentence + ("" if sentence.endswith("?") else ".") + hint
