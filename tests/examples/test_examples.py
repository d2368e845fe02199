"""Every example runs as it stands, and recovers the private data of a network that exhume did not train."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run an example as a script and return its ``audit.json``."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert end.value.code == 0
    assert (out / "audit" / "report.html").is_file()
    result: dict[str, Any] = json.loads((out / "audit" / "audit.json").read_text())
    assert result["false_certificates"] == 0
    assert result["holdout_exact"] == 0
    return result


def test_a_plain_training_loop_reveals_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("own_model.py", tmp_path, monkeypatch)
    assert result["training_size_estimate"] == 20
    assert result["exact"] >= 18
    assert result["certified_exact"] >= 16


def test_a_fine_tuned_model_reveals_its_base_and_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("fine_tuned.py", tmp_path, monkeypatch)
    assert result["start"]["candidates"][0]["name"].endswith("base-large.safetensors")
    assert result["start"]["stand_ins"] == ["head.bias", "head.weight"]
    assert result["training_size_estimate"] == 10
    assert result["exact"] >= 9
    assert result["certified_exact"] >= 7


def test_records_are_recovered_after_a_search_for_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("tabular.py", tmp_path, monkeypatch)
    assert result["start"]["candidates"][0]["name"] == "seed 1234"
    assert result["exact"] >= 11
    assert result["certified_exact"] >= 10


@pytest.mark.parametrize("name", ["own_model.py", "fine_tuned.py", "tabular.py"])
def test_training_code_does_not_use_exhume(name: str) -> None:
    above, line, below = (EXAMPLES / name).read_text().partition("# -----")
    assert line
    assert "import" in above
    assert "train_and_audit" in below
    assert "import exhume" not in above
    assert "from exhume" not in above
