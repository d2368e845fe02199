"""The table of a sweep: which results it holds, and which of them a page shows."""

import pytest

from exhume.sweeps import LocalEngine, TaskRecord, run_sweep
from exhume.sweeps.table import Table, choose_results
from tests.sweeps.pretend_commands import calls, job, rows, sweep


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def test_results_are_chosen_by_patterns(tmp_path):
    result = run_sweep(sweep(results=("result.n*",)), [job(tmp_path, 1, "1")], LocalEngine(), tmp_path)
    assert [name for name in rows(result)[0] if name.startswith("result.")] == ["result.number"]


def test_a_page_shows_each_difference_once_with_held_out_results(tmp_path):
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
