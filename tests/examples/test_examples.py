"""Every example runs as it stands, and finds what was planted in a network that exhume did not train."""

import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Run an example as a script and return the account it leaves."""
    monkeypatch.setattr(sys, "argv", [name, "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert end.value.code == 0
    assert (out / "audit" / "report.html").is_file()
    account: dict[str, object] = json.loads((out / "audit" / "audit.json").read_text())
    assert account["false_certificates"] == 0
    assert account["holdout_exact"] == 0
    return account


def test_a_plain_training_loop_gives_its_pictures_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = run("own_model.py", tmp_path, monkeypatch)
    assert account["certified_exact"] == account["training_size_estimate"] == 20


def test_a_fine_tuned_model_gives_away_its_base_and_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = run("fine_tuned.py", tmp_path, monkeypatch)
    assert account["start"]["candidates"][0]["name"].endswith("base-large.safetensors")  # type: ignore[index]
    assert account["start"]["stand_ins"] == ["head.bias", "head.weight"]  # type: ignore[index]
    assert account["training_size_estimate"] == 10
    assert int(account["certified_exact"]) >= 8  # type: ignore[call-overload]


def test_a_table_is_read_off_weights_whose_seed_nobody_wrote_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = run("tabular.py", tmp_path, monkeypatch)
    assert account["start"]["candidates"][0]["name"] == "seed 1234"  # type: ignore[index]
    assert account["certified_exact"] == 12


def test_examples_above_the_line_know_nothing_of_exhume() -> None:
    for path in EXAMPLES.glob("*.py"):
        above = path.read_text().split("# -----")[0]
        assert "import exhume" not in above, path
        assert "from exhume" not in above, path
