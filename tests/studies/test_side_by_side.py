"""Cells measured by several processes are those that one process measures, each once."""

import functools
import os
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
