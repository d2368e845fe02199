"""``exhume sweep``: real commands over a grid, killed and continued, and a sentence for what it cannot run."""

import csv
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from exhume.cli import main
from tests.cli.child_commands import kill_at_write, run_in_child

TRAIN = """
commands = ["train", "attack"]
seeds = 2
results = ["training.result.loss", "result.candidates"]
[options.train]
data = "digits"
classes = "odd-even"
depth = 1
steps = 20
test = 0
centre = false
[options.attack]
attack = "weight-difference"
[grid.train]
size = [4, 6]
[grid.attack]
set.steps = [1, 2]
"""


def written(folder: Path, text: str) -> str:
    file = folder / "sweep.toml"
    file.write_text(text)
    return str(file)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open() as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert main(["sweep", written(folder, TRAIN), f"--out={folder / 'out'}", "--quiet"]) == 0
    return folder / "out"


def test_a_grid_of_trainings_and_attacks_ends_in_one_table(whole, tmp_path, capsys):
    rows = table(whole)
    assert [(row["train.size"], row["attack.set.steps"], row["seed"]) for row in rows] == [
        (size, steps, seed) for size in "46" for steps in "12" for seed in "01"
    ]
    assert [row["result.candidates"] for row in rows] == ["12"] * 4 + ["18"] * 4
    assert rows[0]["training.result.loss"] == rows[2]["training.result.loss"] != rows[1]["training.result.loss"]
    assert (whole / "tasks" / rows[0]["task"] / "log.txt").read_text() == "", "commands of a sweep are quiet"
    before = {path: path.stat().st_mtime_ns for path in whole.glob("tasks/*/task.json")}
    assert main(["sweep", written(tmp_path, TRAIN), f"--out={whole}"]) == 0
    printed = capsys.readouterr()
    assert "8 of 8 tasks done, 8 of them by an earlier call, 0 failed." in printed.out
    assert "8 tasks: train, then attack" in printed.err
    assert main(["sweep", written(tmp_path, TRAIN), f"--out={whole}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["tasks"], result["done"], result["failed"]) == (8, 8, {})
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX here")
def test_a_killed_driver_loses_only_the_running_task(whole, tmp_path):
    file, cut = written(tmp_path, TRAIN), tmp_path / "cut"
    command = ["sweep", file, f"--out={cut}", "--quiet"]
    kill = partial(kill_at_write, "task.json", count=3)
    assert run_in_child(command, tmp_path / "run", kill) == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in cut.glob("tasks/*/task.json")}
    assert len(done) == 3
    assert main(command) == 0
    assert done == {path: path.stat().st_mtime_ns for path in done}
    assert table(cut) == table(whole)


def test_tasks_that_fail_are_in_the_table_and_in_the_exit_code(tmp_path, capsys):
    text = """
    commands = ["train"]
    [options.train]
    data = "digits"
    steps = 2
    [grid.train]
    classes = ["odd-even", "cats", "dogs", "birds"]
    size = [4, 6]
    """
    assert main(["sweep", written(tmp_path, text), f"--out={tmp_path / 'out'}"]) == 1
    rows = table(tmp_path / "out")
    assert [row["state"] for row in rows] == ["done"] * 2 + ["failed"] * 6
    assert all("There is no task" in row["message"] for row in rows[2:])
    printed = capsys.readouterr().out
    assert "2 of 8 tasks done, 6 failed" in printed
    assert printed.count(" failed: ") == 5
    assert "1 more failed" in printed
    assert rows[2]["message"].split("'")[0] in (tmp_path / "out" / "summary.html").read_text()


def test_a_network_is_trained_on_the_set_distilled_before(tmp_path):
    text = """
    commands = ["distil", "train"]
    results = ["training.training_size", "distilled.copies*"]
    [options.distil]
    data = "digits"
    classes = "odd-even"
    size = 12
    steps = 5
    [grid.distil]
    distilled = [4, 6]
    [options.train]
    width = 16
    steps = 5
    """
    assert main(["sweep", written(tmp_path, text), f"--out={tmp_path / 'out'}"]) == 0
    assert [row["training.training_size"] for row in table(tmp_path / "out")] == ["4", "6"]


def test_an_address_needs_ray_and_must_answer(tmp_path, capsys):
    file = written(tmp_path, TRAIN)
    assert main(["sweep", file, "--address=localhost:1"]) == 2
    assert "goes with --engine ray" in capsys.readouterr().err
    pytest.importorskip("ray", reason="ray is not installed")
    for address, said in (
        ("localhost:1", "No Ray cluster answers"),
        ("nonsense", "HOST:PORT"),
        ("ray://localhost:1", "HOST:PORT"),
    ):
        assert main(["sweep", file, "--engine=ray", f"--address={address}", f"--out={tmp_path / 'out'}"]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_not_installed_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["sweep", written(tmp_path, TRAIN), "--engine=ray", f"--out={tmp_path / 'out'}"]) == 2
    assert "pip install 'exhume[ray]'" in capsys.readouterr().err
