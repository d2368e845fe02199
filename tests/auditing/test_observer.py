"""Observers of audits."""

from exhume.auditing.observer import Observer, SilentObserver
from exhume.cli.console import CommandConsole
from tests.auditing.audited_networks import trained


def test_progress_goes_to_the_callback_and_notes_nowhere() -> None:
    reports: list[tuple[str, int, int]] = []
    observer = SilentObserver(lambda stage, done, total, note="": reports.append((stage, done, total)))
    observer.note("dropped")
    with observer.progress() as progress:
        progress("search", 1, 2)
    assert reports == [("search", 1, 2)]


def test_the_console_of_the_command_line_is_an_observer() -> None:
    assert isinstance(CommandConsole(as_json=False, quiet=True), Observer)
    assert not isinstance(trained(), Observer)
