"""The help of every command shows no type behind flags and no range behind seeds."""

import pytest

from exhume.cli import main

COMMANDS = ["demo", "train", "attack", "evaluate", "audit", "distil", "reproduce", "sweep", "data list"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_free_of_types_and_ranges(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Usage: exhume" in printed
    assert "<bool>" not in printed
    assert "x<=" not in printed


def test_commands_are_completed_in_a_shell(capsys, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "exhume aud")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_EXHUME_COMPLETE", "complete_bash")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.split() == ["audit"]
