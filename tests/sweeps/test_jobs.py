"""One task: its commands run in order, its record is whole, and a failure is explained."""

from dataclasses import replace

import pytest

from exhume.sweeps import TaskRecord, run_job
from exhume.sweeps.jobs import LOG, read_results
from tests.sweeps.pretend_commands import HOSTILE, calls, job


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def test_a_record_is_saved_and_loaded(tmp_path):
    record = run_job(job(tmp_path, 1, "5"))
    assert record.state == "done"
    assert record.results == {"result.number": 5.0, "result.deep.good": True, "result.word": HOSTILE}
    assert TaskRecord.load(tmp_path / "tasks" / record.key) == record
    (tmp_path / "tasks" / record.key / "task.json").write_text("{")
    assert TaskRecord.load(tmp_path / "tasks" / record.key) is None


def test_a_failing_command_ends_its_task_with_a_reason(tmp_path):
    record = run_job(job(tmp_path, 1, "1", "fail", "2"))
    assert (record.state, record.exit_code, record.message) == ("failed", 2, f"There is no {HOSTILE}.")
    assert [line[0] for line in calls] == ["1", "fail"]
    crashed = run_job(job(tmp_path, 2, "crash"))
    assert crashed.message == "RuntimeError: out of all bounds."
    assert "Traceback" in (tmp_path / "tasks" / crashed.key / LOG).read_text()


def test_user_code_that_exits_fails_its_task(tmp_path):
    left = run_job(job(tmp_path, 1, "leave", "2"))
    assert (left.state, left.message) == ("failed", "The code of the user ended the process (0).")
    assert [line[0] for line in calls] == ["leave"]


def test_a_machine_without_the_working_directory_runs_tasks(tmp_path):
    record = run_job(replace(job(tmp_path, 1, "5"), place=tmp_path / "on another machine"))
    assert (record.state, record.results["result.number"]) == ("done", 5.0)


def test_findings_of_an_audit_are_no_failures(tmp_path):
    record = run_job(job(tmp_path, 1, "audit"))
    assert (record.state, record.exit_code) == ("done", 3)


def test_another_version_is_not_trusted(tmp_path):
    record = run_job(replace(job(tmp_path, 1, "1"), version="0.0.1"))
    assert record.state == "failed"
    assert "0.0.1" in record.message
    assert not calls


def test_a_folder_that_cannot_be_made_fails_one_task(tmp_path):
    (tmp_path / "tasks").write_text("a file where a folder should be")
    record = run_job(job(tmp_path, 1, "1"))
    assert record.state == "failed"
    assert "cannot be used" in record.message


def test_files_that_are_no_results_are_ignored(tmp_path):
    for name in ("checkpoints/a.json", "cells/a.json", "task.json", "request.json", ".result.json.x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "fig2").mkdir()
    (tmp_path / "fig2" / "result.json").write_text(
        '{"numbers": {"b": 2, "seed": 1}, "versions": {"c": 3}, "d": {"threat_model": {"e": 4}}, "text": "%s"}'
        % ("x" * 99)
    )
    assert read_results(tmp_path) == {"fig2.result.numbers.b": 2}
