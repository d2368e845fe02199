"""The running command, as reports print it."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.invocation import format_invocation, remember_arguments


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"))))
def test_a_shell_reads_back_the_same_arguments(arguments: list[str]) -> None:
    with remember_arguments(arguments):
        assert shlex.split(format_invocation()) == ["exhume", *arguments]


def test_commands_inside_commands_restore_the_outer_one() -> None:
    with remember_arguments(["sweep"]):
        with remember_arguments(["train"]):
            assert format_invocation() == "exhume train"
        assert format_invocation() == "exhume sweep"
    assert format_invocation() == "exhume"
