"""Commands whose help shows no type behind an option without a value."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose help shows no type behind a flag."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, ``--help`` included, with nothing to show behind flags."""
        return hide_flag_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose help shows no type behind a flag."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, ``--help`` included, with nothing to show behind flags."""
        return hide_flag_types(super().get_params(ctx))


def hide_flag_types(parameters: Any) -> Any:
    """Give flags an empty text to show behind them; typer would write ``<bool>``."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters
