"""Sweeps at work: nothing is run twice, nothing is lost, failures are told, and the page is safe to open."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.core.errors import ExhumeError
from exhume.sweeps import Job, LocalEngine, Sweep, TaskRecord, run_job, run_sweep, runner
from exhume.sweeps.jobs import LOG, Interrupted, read_results
from exhume.sweeps.table import Table, choose_results

HOSTILE = "<script>alert('1')</script>"
calls: list[tuple[str, ...]] = []


def pretend(line):
    """A command of a few words: writes its number, or fails as told. What real commands do is tested with them."""
    line = tuple(line)
    calls.append(line)
    word, folder = line[0], Path(line[-1])
    if word == "fail":
        print(f"exhume: There is no {HOSTILE}.")
        return 2
    if word == "crash":
        raise RuntimeError("out of all bounds\nand more")
    if word == "leave":
        raise SystemExit(0)
    if word == "stop":
        raise KeyboardInterrupt
    if word == "audit":
        return 3
    (folder / "result.json").write_text(
        json.dumps({"number": float(word), "seed": 7, "deep": {"good": True, "list": [1]}, "word": HOSTILE})
    )
    return 0


def job(tmp_path, number, *words, seed=0, **settings):
    key = f"{number:016x}"
    folder = tmp_path / "tasks" / key
    return Job(
        key=key,
        lines=tuple((word, str(folder)) for word in words),
        folder=folder,
        place=Path.cwd(),
        settings={"train.size": number, **settings},
        seed=seed,
        run=pretend,
    )


@pytest.fixture(autouse=True)
def forgotten():
    calls.clear()


def sweep(**changed):
    return Sweep(**{"commands": ("train",), "grid": {"train": {"size": [1, 2, 3]}}, **changed})


def rows(told):
    with told.table.open() as file:
        return list(csv.DictReader(file))


def test_a_record_comes_back_as_it_was(tmp_path):
    record = run_job(job(tmp_path, 1, "5"))
    assert record.state == "done"
    assert record.results == {"result.number": 5.0, "result.deep.good": True, "result.word": HOSTILE}
    assert TaskRecord.load(tmp_path / "tasks" / record.key) == record
    (tmp_path / "tasks" / record.key / "task.json").write_text("{")
    assert TaskRecord.load(tmp_path / "tasks" / record.key) is None


def test_a_command_that_fails_ends_its_task_and_says_why(tmp_path):
    record = run_job(job(tmp_path, 1, "1", "fail", "2"))
    assert (record.state, record.exit_code, record.message) == ("failed", 2, f"There is no {HOSTILE}.")
    assert [line[0] for line in calls] == ["1", "fail"]
    crashed = run_job(job(tmp_path, 2, "crash"))
    assert crashed.message == "RuntimeError: out of all bounds."
    assert "Traceback" in (tmp_path / "tasks" / crashed.key / LOG).read_text()


def test_code_of_others_that_leaves_the_process_fails_its_task(tmp_path):
    left = run_job(job(tmp_path, 1, "leave", "2"))
    assert (left.state, left.message) == ("failed", "The process was told to end (0).")
    assert [line[0] for line in calls] == ["leave"]


def test_a_machine_without_the_folder_of_the_call_works_all_the_same(tmp_path):
    record = run_job(replace(job(tmp_path, 1, "5"), place=tmp_path / "on another machine"))
    assert (record.state, record.results["result.number"]) == ("done", 5.0)


def test_the_answers_of_an_audit_are_no_failures(tmp_path):
    record = run_job(job(tmp_path, 1, "audit"))
    assert (record.state, record.exit_code) == ("done", 3)


def test_another_version_is_not_trusted(tmp_path):
    record = run_job(replace(job(tmp_path, 1, "1"), version="0.0.1"))
    assert record.state == "failed"
    assert "0.0.1" in record.message
    assert not calls


@pytest.mark.skipif(os.geteuid() != 0 and not hasattr(os, "geteuid"), reason="needs a file system")
def test_a_folder_that_cannot_be_made_fails_one_task(tmp_path):
    (tmp_path / "tasks").write_text("a file where a folder should be")
    record = run_job(job(tmp_path, 1, "1"))
    assert record.state == "failed"
    assert "cannot be used" in record.message


def test_what_is_done_is_found_and_what_failed_is_tried_again(tmp_path):
    jobs = [job(tmp_path, 1, "1"), job(tmp_path, 2, "fail"), job(tmp_path, 3, "3")]
    first = run_sweep(sweep(), jobs, LocalEngine(), tmp_path)
    assert [record.key for record in first.failed] == [jobs[1].key]
    assert [row["state"] for row in rows(first)] == ["done", "failed", "done"]
    assert [row["result.number"] for row in rows(first)] == ["1.0", "", "3.0"]
    calls.clear()
    mended = [jobs[0], job(tmp_path, 2, "2"), jobs[2]]
    heard = []
    second = run_sweep(sweep(), mended, LocalEngine(), tmp_path, progress=lambda *told: heard.append(told[1:3]))
    assert [line[0] for line in calls] == ["2"]
    assert second.found == 2
    assert not second.failed
    assert heard == [(2, 3), (3, 3)]


def test_an_interrupted_sweep_keeps_what_was_done_and_goes_on(tmp_path):
    jobs = [job(tmp_path, 1, "1"), job(tmp_path, 2, "stop"), job(tmp_path, 3, "3")]
    with pytest.raises(Interrupted):
        run_sweep(sweep(), jobs, LocalEngine(), tmp_path)
    assert (tmp_path / "table.csv").read_text().count("\n") == 2
    calls.clear()
    run_sweep(sweep(), [jobs[0], job(tmp_path, 2, "2"), jobs[2]], LocalEngine(), tmp_path)
    assert sorted(line[0] for line in calls) == ["2", "3"]


def test_a_task_that_took_the_process_down_comes_after_those_that_did_not(tmp_path):
    jobs = [job(tmp_path, number, str(number)) for number in (1, 2, 3)]
    jobs[0].folder.mkdir(parents=True)
    told = run_sweep(sweep(), jobs, LocalEngine(), tmp_path)
    assert [line[0] for line in calls] == ["2", "3", "1"]
    assert [record.key for record in told.records] == [one.key for one in jobs], "the order of the table stays"


def test_a_table_that_takes_long_to_write_is_written_seldom(tmp_path, monkeypatch):
    write, written = runner._write, []

    class Clock:
        """Time passes only while a table is written (1 s) and otherwise a little at every look."""

        now = 0.0

        def monotonic(self):
            self.now += 0.01
            return self.now

    clock = Clock()

    def slowly(*told):
        clock.now += 1.0
        written.append(len(told[1].records))
        write(*told)

    monkeypatch.setattr(runner, "WRITE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(runner, "_write", slowly)
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


def test_records_from_machines_that_share_no_disk_are_kept_here(tmp_path):
    jobs = [job(tmp_path, number, "1") for number in (1, 2, 3)]
    told = run_sweep(sweep(), jobs, Elsewhere(), tmp_path)
    assert [record.key for record in told.records] == [one.key for one in jobs], "the order is that of the tasks"
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


def test_results_are_chosen_by_patterns(tmp_path):
    told = run_sweep(sweep(results=("result.n*",)), [job(tmp_path, 1, "1")], LocalEngine(), tmp_path)
    assert [name for name in rows(told)[0] if name.startswith("result.")] == ["result.number"]


def test_files_that_are_no_results_are_left_aside(tmp_path):
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


def test_a_page_shows_what_differs_once_and_with_its_null(tmp_path):
    found = {
        "audit.size": [10, 20], "audit.estimate": [10, 20], "audit.auc": [1, 1], "audit.seconds": [1, 2],
        "audit.good": [3, 4], "audit.holdout_good": [0, 0], "audit.exact": [0, 0], "audit.holdout_exact": [0, 1],
        "audit.at.0": [5, 5], "audit.holdout_at.0": [1, 1], "audit.holdout_alone": [6, 7], "audit.last": [8, 9],
    }  # fmt: skip
    records = [
        TaskRecord(
            key=str(number), settings={}, seed=number, state="done", exit_code=0,
            results={name: values[number] for name, values in found.items()},
        )
        for number in (0, 1)
    ]  # fmt: skip
    table = Table.of(sweep(), records)
    counts = ["audit.good", "audit.holdout_good", "audit.exact", "audit.holdout_exact"]
    assert choose_results(table, 12) == ["audit.size", *counts, "audit.holdout_alone", "audit.last"]
    assert choose_results(table, 4) == ["audit.size", *counts[:2], "audit.holdout_alone"], (
        "never a count without its null"
    )
    one = Table.of(sweep(), records[:1])
    assert choose_results(one, 5) == ["audit.size", "audit.auc", *counts[:2], "audit.holdout_alone"], (
        "or all, if none differs"
    )


def test_the_page_tells_means_and_failures_and_escapes_everything(tmp_path):
    jobs = [
        job(tmp_path, 10 * size + seed, str(size + 2 * seed), seed=seed, **{"train.size": size, "train.data": HOSTILE})
        for size in (1, 2)
        for seed in (0, 1)
    ]
    jobs.append(job(tmp_path, 99, "fail", **{"train.size": 3, "train.data": HOSTILE}))
    told = run_sweep(
        sweep(seeds=(0, 1)), jobs, LocalEngine(), tmp_path, title=HOSTILE, command=f"exhume sweep {HOSTILE}"
    )
    text = told.page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "2 ± 1.414" in text
    assert "3 ± 1.414" in text
    assert "4 of 5 tasks done, 1 failed" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
