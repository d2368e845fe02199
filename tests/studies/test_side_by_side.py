"""Cells measured by several processes are those that one process measures, each once."""

import functools
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.core.errors import ExhumeError
from exhume.studies.side_by_side import SharedCell, _Schedule, call_for_nothing, choose_jobs, measure_cells
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
    for found in (many, alone):
        assert {about: one["square"] for about, one in found.items()} == {"3": 9, "1": 1, "2": 4}
    assert os.getpid() not in {one["process"] for one in many.values()}
    assert {one["process"] for one in alone.values()} == {os.getpid()}
    assert notes[:3] == [("cells", done, 3) for done in (1, 2, 3)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_cells_that_build_on_others_follow_them(tmp_path, jobs):
    """A cell and the square that it calls for, until 256; two requests for the same cell may go on differently."""

    def chain(number):
        then = (lambda found: [chain(found["square"])]) if number < 256 else call_for_nothing
        return replace(cell(number), then=then)

    aside = replace(cell(4), then=lambda found: [cell(5)])
    run = run_in(tmp_path, jobs)
    found = measure_cells(run, [chain(2), aside])
    assert set(found) == {"2", "4", "16", "256", "5"}
    before = {about: one["process"] for about, one in found.items()}
    again = measure_cells(run, [chain(2), aside])
    assert {about: one["process"] for about, one in again.items()} == before, "nothing is measured twice"


def test_large_cells_start_first_and_followers_wait(tmp_path):
    schedule = _Schedule(run_in(tmp_path, 2), [replace(cell(1), then=lambda found: [cell(9)]), cell(3), cell(2)])
    first = schedule.take()
    assert (first.about, len(schedule.pending)) == ("3", 3)
    one = schedule.pending["1"][0]
    one.read_or_measure(schedule.run)
    schedule.finish(one)
    assert schedule.take().about == "9"


def test_cells_on_disk_are_not_measured_again_unless_a_key_is_missing(tmp_path):
    first = measure_cells(run_in(tmp_path, 1), [cell(1)])
    run = run_in(tmp_path, 2)
    assert measure_cells(run, [cell(1), cell(2)])["1"]["process"] == first["1"]["process"]
    assert run.find_shared_cell("square", "1")["square"] == 1
    assert run.find_shared_cell("square", "1", needed=("cube",)) is None
    assert run.find_shared_cell("square", "3") is None


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
    assert done.find(run) is not None


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
