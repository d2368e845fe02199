"""What a command attacks: a run folder or the user's own network, never both."""

from pathlib import Path

import pytest

from exhume.cli.console import CommandConsole
from exhume.cli.options import OwnModel
from exhume.cli.target import find_target
from exhume.core.errors import ExhumeError

CONSOLE = CommandConsole(as_json=False, quiet=True)


@pytest.mark.parametrize(
    ("run", "own", "words"),
    [
        (None, OwnModel(), "Name either"),
        (Path("run"), OwnModel(model="a:b"), "Name either"),
        (Path("run"), OwnModel(final=Path("final.pt")), "go with --model"),
        (None, OwnModel(trained_with=["loss=ce"]), "go with --model"),
        (None, OwnModel(model="a:b"), "--out"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Path | None, own: OwnModel, words: str) -> None:
    with pytest.raises(ExhumeError, match=words):
        find_target(run, None, own, CONSOLE)


def test_bounds_of_a_run_folder_may_be_stated_anew(trained: Path, tmp_path: Path) -> None:
    folder, view, start = find_target(trained, None, OwnModel(), CONSOLE)
    assert (folder.path, view.bounds, start) == (trained, (0.0, 1.0), None)
    folder, view, _ = find_target(trained, tmp_path, OwnModel(bounds="0,16"), CONSOLE)
    assert (folder.path, view.bounds) == (tmp_path, (0.0, 16.0))
