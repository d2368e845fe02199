"""The page of a sweep shows means and failures, and escapes everything."""

import pytest

from exhume.sweeps import LocalEngine, run_sweep
from tests.sweeps.pretend_commands import HOSTILE, calls, job, sweep


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def test_the_page_shows_means_and_failures_and_escapes_text(tmp_path):
    jobs = [
        job(tmp_path, 10 * size + seed, str(size + 2 * seed), seed=seed, **{"train.size": size, "train.data": HOSTILE})
        for size in (1, 2)
        for seed in (0, 1)
    ]
    jobs.append(job(tmp_path, 99, "fail", **{"train.size": 3, "train.data": HOSTILE}))
    result = run_sweep(
        sweep(seeds=(0, 1)), jobs, LocalEngine(), tmp_path, title=HOSTILE, command=f"exhume sweep {HOSTILE}"
    )
    text = result.page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "2 ± 1.414" in text
    assert "3 ± 1.414" in text
    assert "4 of 5 tasks done, 1 failed" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
