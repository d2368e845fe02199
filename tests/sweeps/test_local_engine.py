"""The local engine runs jobs one after the other."""

import pytest

from exhume.sweeps import LocalEngine
from tests.sweeps.pretend_commands import calls, job


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def test_jobs_run_in_their_order_and_each_gives_its_record(tmp_path):
    engine = LocalEngine()
    engine.check()
    records = list(engine.run([job(tmp_path, 1, "1"), job(tmp_path, 2, "fail"), job(tmp_path, 3, "3")]))
    assert [record.state for record in records] == ["done", "failed", "done"]
    assert [line[0] for line in calls] == ["1", "fail", "3"]


def test_a_job_runs_only_when_its_record_is_asked_for(tmp_path):
    records = LocalEngine().run([job(tmp_path, 1, "1"), job(tmp_path, 2, "2")])
    next(records)
    assert [line[0] for line in calls] == ["1"]
