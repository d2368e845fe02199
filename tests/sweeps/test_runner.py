"""Sweeps: no finished task runs twice, no record is lost, and the table is always there."""

import os

import pytest

from exhume.core.errors import ExhumeError
from exhume.sweeps import LocalEngine, TaskRecord, run_sweep, runner
from exhume.sweeps.jobs import Interrupted
from tests.sweeps.pretend_commands import calls, job, rows, sweep


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


@pytest.mark.skipif(os.geteuid() != 0 and not hasattr(os, "geteuid"), reason="needs a file system")
def test_finished_tasks_are_skipped_and_failed_tasks_run_again(tmp_path):
    jobs = [job(tmp_path, 1, "1"), job(tmp_path, 2, "fail"), job(tmp_path, 3, "3")]
    first = run_sweep(sweep(), jobs, LocalEngine(), tmp_path)
    assert [record.key for record in first.failed] == [jobs[1].key]
    assert [row["state"] for row in rows(first)] == ["done", "failed", "done"]
    assert [row["result.number"] for row in rows(first)] == ["1.0", "", "3.0"]
    calls.clear()
    mended = [jobs[0], job(tmp_path, 2, "2"), jobs[2]]
    reports = []
    second = run_sweep(sweep(), mended, LocalEngine(), tmp_path, progress=lambda *report: reports.append(report[1:3]))
    assert [line[0] for line in calls] == ["2"]
    assert second.found == 2
    assert not second.failed
    assert reports == [(2, 3), (3, 3)]


def test_an_interrupted_sweep_keeps_finished_tasks_and_continues(tmp_path):
    jobs = [job(tmp_path, 1, "1"), job(tmp_path, 2, "stop"), job(tmp_path, 3, "3")]
    with pytest.raises(Interrupted):
        run_sweep(sweep(), jobs, LocalEngine(), tmp_path)
    assert (tmp_path / "table.csv").read_text().count("\n") == 2
    calls.clear()
    run_sweep(sweep(), [jobs[0], job(tmp_path, 2, "2"), jobs[2]], LocalEngine(), tmp_path)
    assert sorted(line[0] for line in calls) == ["2", "3"]


def test_a_task_that_crashed_the_process_runs_last(tmp_path):
    jobs = [job(tmp_path, number, str(number)) for number in (1, 2, 3)]
    jobs[0].folder.mkdir(parents=True)
    result = run_sweep(sweep(), jobs, LocalEngine(), tmp_path)
    assert [line[0] for line in calls] == ["2", "3", "1"]
    assert [record.key for record in result.records] == [one.key for one in jobs], "the order of the table stays"


def test_a_table_that_is_slow_to_write_is_written_rarely(tmp_path, monkeypatch):
    write, written = runner._write, []

    class Clock:
        """Time passes only while a table is written (1 s) and otherwise a little at every look."""

        now = 0.0

        def monotonic(self):
            self.now += 0.01
            return self.now

    clock = Clock()

    def write_slowly(*values):
        clock.now += 1.0
        written.append(len(values[1].records))
        write(*values)

    monkeypatch.setattr(runner, "WRITE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(runner, "_write", write_slowly)
    monkeypatch.setattr(runner, "time", clock)
    run_sweep(sweep(), [job(tmp_path, number, "1") for number in range(30)], LocalEngine(), tmp_path)
    assert written[0] == 1
    assert written[-1] == 30
    assert len(written) == 2, "a table that takes 1 s is written again after 20 s at the earliest"


class Elsewhere:
    """An engine on a machine that shares no disk with this one."""

    def check(self):
        pass

    def run(self, jobs):
        for one in reversed(jobs):
            yield TaskRecord(key=one.key, settings=one.settings, seed=0, state="done", exit_code=0, results={"x": 1})


def test_records_from_machines_without_a_shared_disk_are_saved(tmp_path):
    jobs = [job(tmp_path, number, "1") for number in (1, 2, 3)]
    result = run_sweep(sweep(), jobs, Elsewhere(), tmp_path)
    assert [record.key for record in result.records] == [one.key for one in jobs], "the order is that of the tasks"
    assert run_sweep(sweep(), jobs, Elsewhere(), tmp_path).found == 3


def test_two_sweeps_do_not_write_to_one_folder(tmp_path):
    inner = []

    def second(stage, done, total, note=""):
        if not inner:
            inner.append(1)
            with pytest.raises(ExhumeError, match="Another sweep"):
                run_sweep(sweep(), [], LocalEngine(), tmp_path)

    run_sweep(sweep(), [job(tmp_path, 1, "1")], LocalEngine(), tmp_path, progress=second)
    assert inner
