"""Where a command speaks, and how wide."""

import pytest

from exhume.cli.console import CommandConsole


def test_a_table_in_a_pipe_is_not_truncated(capsys: pytest.CaptureFixture[str]) -> None:
    head = tuple(f"a column called {number}" for number in range(12))
    CommandConsole(as_json=False, quiet=False).print_table(head, [tuple(f"value {number}" for number in range(12))])
    first, second = capsys.readouterr().out.splitlines()
    assert all(name in first for name in head)
    assert all(f"value {number}" in second for number in range(12))
