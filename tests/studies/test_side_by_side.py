"""Cells measured by several processes are those that one process measures, each once."""

import functools
import os
import signal
import time
from pathlib import Path

import pytest

from exhume.core.errors import ExhumeError
from exhume.studies.side_by_side import SharedCell, choose_jobs, measure_cells
from exhume.studies.study import StudyRun


def square(number: int, run: StudyRun) -> dict[str, object]:
    if number < 0:
        raise ExhumeError("A negative number has no cell.")
    return {"square": number**2, "process": os.getpid()}


def cell(number: int) -> SharedCell:
    return SharedCell(
        name="square",
        about=str(number),
        measure=functools.partial(square, number),
        needed=("square",),
        cost=number,
    )


def run_in(folder: Path, jobs: int) -> StudyRun:
    return StudyRun(folder=folder, device="cpu", jobs=jobs)


def test_several_processes_measure_what_one_measures(tmp_path):
    numbers = [3, 1, 2, 3]
    notes = []
    run = run_in(tmp_path / "many", 2)
    run.progress = lambda stage, done, total, note: notes.append((stage, done, total))
    many = measure_cells(run, [cell(number) for number in numbers])
    alone = measure_cells(run_in(tmp_path / "alone", 1), [cell(number) for number in numbers])
    assert [one["square"] for one in many] == [one["square"] for one in alone] == [9, 1, 4, 9]
    assert os.getpid() not in {one["process"] for one in many}
    assert {one["process"] for one in alone} == {os.getpid()}
    assert many[0]["process"] == many[3]["process"]
    assert notes[:3] == [("cells", done, 3) for done in (1, 2, 3)]


def test_cells_on_disk_are_not_measured_again_unless_a_key_is_missing(tmp_path):
    first = measure_cells(run_in(tmp_path, 1), [cell(1)])
    run = run_in(tmp_path, 2)
    assert measure_cells(run, [cell(1), cell(2)])[0]["process"] == first[0]["process"]
    assert run.is_measured("square", "1")
    assert not run.is_measured("square", "1", needed=("cube",))
    assert not run.is_measured("square", "3")


def test_an_error_in_a_process_is_reported_here(tmp_path):
    with pytest.raises(ExhumeError, match="A negative number has no cell"):
        measure_cells(run_in(tmp_path, 2), [cell(2), cell(-1)])


def test_a_cpu_gets_one_process():
    assert choose_jobs("cpu") == 1


def end_this_process(run: StudyRun) -> dict[str, object]:
    os._exit(1)


def test_a_process_that_dies_is_one_sentence_and_finished_cells_are_kept(tmp_path):
    run = run_in(tmp_path, 2)
    done = cell(5)
    measure_cells(run, [done])
    deadly = SharedCell(name="deadly", about="deadly", measure=end_this_process)
    with pytest.raises(ExhumeError, match="A process that measured cells died, perhaps for want of memory"):
        measure_cells(run, [done, deadly, cell(1)])
    assert run.is_measured(done.name, done.about)


def interrupt_all(run: StudyRun) -> dict[str, object]:
    """As a terminal does: the command and its processes get the signal."""
    os.kill(os.getppid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)
    return {}


def test_an_interrupt_ends_the_command_and_its_processes(tmp_path):
    run = run_in(tmp_path, 2)
    cells = [SharedCell(name="endless", about=str(number), measure=interrupt_all) for number in range(2)]
    before = signal.getsignal(signal.SIGINT)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure_cells(run, cells)
    assert time.monotonic() - started < 600  # without waiting for the cells
    assert signal.getsignal(signal.SIGINT) is before
