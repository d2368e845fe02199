"""A trained network that the tests of several commands share."""

from pathlib import Path

import pytest

from exhume.cli import main
from tests.cli.commands import TRAIN


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a trained network, which tests may attack; it is trained once."""
    folder = tmp_path_factory.mktemp("trained")
    assert main([*TRAIN, f"--out={folder}", "--quiet"]) == 0
    return folder
