"""Every notebook runs from its first cell to its last, and its proofs hold."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def stored_text(cell: dict[str, Any]) -> str:
    """Return what a cell printed when the notebook was saved."""
    streams = [output["text"] for output in cell["outputs"] if output["output_type"] == "stream"]
    return "".join(line for text in streams for line in text)


def without_numbers(text: str) -> str:
    """Return text without its numbers, some of which depend on the machine."""
    return re.sub(r"[-+]?[0-9][0-9.]*(e[-+]?[0-9]+)?", "#", text)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_certifies_every_image(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The cells run in this process: a kernel would have to import PyTorch again."""
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    with torch.random.fork_rng(), contextlib.ExitStack() as after:
        after.callback(plt.close, "all")
        plt.switch_backend("agg")
        for cell in cells:
            exec(compile("".join(cell["source"]), notebook.name, "exec"), names)
            assert without_numbers(capsys.readouterr().out) == without_numbers(stored_text(cell))
        assert plt.get_fignums(), "a notebook shows figures"
    found = names["found"]
    assert int(found.certified.sum()) >= 7
    assert names["result"].false_certificates == 0
    assert names["result"].holdout.exact == 0


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_its_results_and_no_path_of_a_machine(notebook: Path):
    text = notebook.read_text()
    outputs = [output for cell in json.loads(text)["cells"] for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not [word for word in ("/tmp/", "/home/", "/root/") if word in text]


def test_there_are_two():
    assert [notebook.stem for notebook in NOTEBOOKS] == ["audit-your-checkpoint", "the-certificate-step-by-step"]
