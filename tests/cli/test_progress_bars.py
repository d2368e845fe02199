"""Progress bars and Ctrl-C: work with a checkpoint stops at its next report, other work at once."""

import io
import signal
from pathlib import Path

import pytest
from rich.console import Console

from exhume.cli.progress_bars import ProgressBars


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120)


def test_work_with_a_checkpoint_stops_at_its_next_report(
    tmp_path: Path, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    steps: list[int] = []
    checkpoint = tmp_path / "work"

    def dig() -> None:
        with ProgressBars(console, checkpoint=checkpoint) as progress:
            for step in range(5):
                if step == 2:
                    signal.raise_signal(signal.SIGINT)
                    checkpoint.write_text("state")
                steps.append(step)
                progress("digging", step, 5)

    with pytest.raises(KeyboardInterrupt):
        dig()
    assert steps == [0, 1, 2]
    assert f"{checkpoint} is kept" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_stops_at_once(tmp_path: Path, console: Console) -> None:
    reached: list[int] = []

    def dig() -> None:
        with ProgressBars(console, checkpoint=tmp_path / "work"):
            signal.raise_signal(signal.SIGINT)
            reached.append(1)
            signal.raise_signal(signal.SIGINT)
            reached.append(2)

    with pytest.raises(KeyboardInterrupt):
        dig()
    assert reached == [1]


def test_an_interrupt_after_the_last_report_is_not_lost(tmp_path: Path, console: Console) -> None:
    def dig() -> None:
        with ProgressBars(console, checkpoint=tmp_path / "work") as progress:
            progress("digging", 1, 1)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        dig()


def test_each_stage_has_a_bar(console: Console) -> None:
    with ProgressBars(console) as progress:
        progress("digging", 1, 2, "deep")
        progress("filling", 3, 0)
        progress("digging", 2, 2)
    done = {task.description: (task.completed, task.total) for task in progress.display.tasks}
    assert done == {"digging": (2, 2), "filling": (3, None)}
