"""Options from settings classes: types, defaults, help and limits come from the fields."""

import inspect
from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
import typer
from pydantic import PositiveInt
from typer.testing import CliRunner

from exhume.cli.app import app
from exhume.cli.command import command, read_field_docs, select_fields
from exhume.cli.console import CommandConsole
from exhume.core.settings import settings
from exhume.models import MLP, ConvNet
from exhume.training.settings import Training


@settings
class Digging:
    """Settings of every kind."""

    depth: PositiveInt | None = None
    """How deep to dig, in ``metres``.

    A second paragraph is for readers of the source.
    """
    careful: bool = True
    slowly: bool = False
    seed: int = 0


def run(*words: str) -> tuple[int, dict[str, Any], str]:
    received: dict[str, Any] = {}
    small = typer.Typer()

    @small.command()
    @command(digging=("Spade", (Digging,)))
    def dig(place: str, *, digging: dict[str, Any], seed: int = 3, console: CommandConsole) -> None:
        """Dig."""
        received.update(place=place, digging=digging, seed=seed)
        console.print("dug")

    result = CliRunner().invoke(small, [*words])
    return result.exit_code, received, result.output


def test_values_arrive_grouped() -> None:
    status, received, printed = run("garden", "--depth", "2", "--no-careful", "--slowly", "--seed", "5")
    assert status == 0
    assert received == {"place": "garden", "digging": {"depth": 2, "careful": False, "slowly": True}, "seed": 5}
    assert printed == "dug\n"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Options that go together."""

    handle: Annotated[str | None, typer.Option("--handle", metavar="MATERIAL")] = None


def test_a_dataclass_of_options_arrives_as_an_instance() -> None:
    received = []
    small = typer.Typer()

    @small.command()
    @command()
    def dig(*, tool: Tool, console: CommandConsole) -> None:
        """Dig."""
        received.append(tool)

    assert CliRunner().invoke(small, ["--handle", "ash"]).exit_code == 0
    assert CliRunner().invoke(small, []).exit_code == 0
    assert received == [Tool(handle="ash"), Tool()]
    assert "MATERIAL" in CliRunner().invoke(small, ["--help"]).output


def test_defaults_are_those_of_the_fields() -> None:
    _, received, printed = run("garden", "--quiet")
    assert received["digging"] == {"depth": None, "careful": True, "slowly": False}
    assert printed == ""


def test_limits_are_those_of_the_fields() -> None:
    status, received, printed = run("garden", "--depth", "0")
    assert (status, received) == (2, {})
    assert "greater than 0" in printed


def test_help_is_the_first_paragraph() -> None:
    assert read_field_docs(Digging) == {"depth": "How deep to dig, in metres."}
    assert "How deep to dig, in metres." in run("--help")[2]


def test_every_setting_of_a_training_is_an_option_with_help() -> None:
    train: Any = typer.main.get_command(app)
    options = {option.name: option for option in train.commands["train"].params}
    for kind in (MLP, ConvNet, Training):
        for field in fields(kind):
            assert options[field.name].help, f"{kind.__name__}.{field.name} has no help"
            if kind is not ConvNet:
                assert options[field.name].default == field.default


def test_fields_are_selected() -> None:
    assert select_fields(MLP, {"width": 3, "channels": 4}) == {"width": 3}


@pytest.mark.parametrize("name", ["train", "attack", "audit", "evaluate", "distil", "sweep", "reproduce", "demo"])
def test_help_shows_no_machine_words(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
    assert "9223372036854775807" not in shown
    assert not [line for line in shown.splitlines() if "<bool>" in line and "--help" not in line]
    assert inspect.cleandoc(shown)
