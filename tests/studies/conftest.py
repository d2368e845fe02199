"""Studies at their smallest, run once per session."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from exhume.studies import STUDIES


@pytest.fixture(scope="session")
def run_smoke(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that runs the smoke preset of a study, once, and returns its folder.

    Studies share cells, as they do when one command runs them.
    """
    out = tmp_path_factory.mktemp("reproduce")

    @functools.cache
    def run(name: str) -> Path:
        STUDIES[name].run("smoke", out / name, device="cpu", shared=out / "shared-cells")
        return out / name

    return run
