"""Settings of the whole suite: threads, Hypothesis, checks of shapes, and the order in which workers take tests."""

import gc
from collections.abc import Generator
from typing import Any

import pytest
import torch
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests import shape_checks

# Workers run side by side and their tensors are small.
torch.set_num_threads(1)

# Every machine draws the same examples, and none fails because it is slow: there is no deadline and no check on the
# time that examples take to draw. Examples share the fixtures of their test, which write a new file each time.
# To look for new counterexamples, run with --hypothesis-profile=explore.
settings.register_profile(
    "exhume",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("explore", settings.get_profile("exhume"), derandomize=False)
settings.load_profile("exhume")

shape_checks.install()

collect_ignore = ["core/fixtures/write_checkpoints.py"]
"""A script that needs libraries which the tests do without: they read the files that it wrote."""


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Search no test for examples in docstrings: only the source has them, and the search takes seconds."""
    collected = yield
    return [one for one in collected if not isinstance(one, DoctestModule)]


def pytest_collection_finish() -> None:
    """Exempt modules and tests from garbage collection: they stay, and searching them takes time in every test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Check the shapes of every function anew in every test."""
    shape_checks.seen.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep neighbouring tests on one worker, so that they share trained networks; an idle worker takes from the other.

    The default of xdist deals tests out in turn, and every worker would train every network. Another ``--dist`` holds.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
