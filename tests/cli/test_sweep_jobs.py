"""Command lines of a sweep: what a shell would pass, checked by the commands before any runs."""

import json
from pathlib import Path

import pytest

from exhume.cli import main


def written(folder: Path, text: str) -> str:
    file = folder / "sweep.toml"
    file.write_text(text)
    return str(file)


def test_a_dry_run_prints_lines_for_a_shell(tmp_path, capsys):
    text = """
    commands = ["train", "audit"]
    [options.train]
    data = "digits"
    linearised = true
    centre = false
    [options.audit]
    attack = ["weight-difference", "gate-certificate"]
    set.weight-difference.sharpness = [10.0, 50.0]
    defences = false
    """
    assert main(["sweep", written(tmp_path, text), "--dry-run", f"--out={tmp_path / 'out'}", "--json"]) == 0
    ((train, audit),) = json.loads(capsys.readouterr().out)["lines"]
    folder = train[-3].removeprefix("--out=")
    assert train[:4] == ["train", "--data=digits", "--linearised", "--no-centre"]
    assert audit == [
        "audit", "--attack=weight-difference", "--attack=gate-certificate",
        "--set=weight-difference.sharpness=[10.0, 50.0]", f"--out={folder}", "--seed=0", "--quiet", "--", folder,
    ]  # fmt: skip
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("commands = ['tran']", "did you mean train"),
        ("commands = ['data']", "a group of commands"),
        ("commands = ['sweep']", "cannot run sweeps"),
        ("commands = ['train']\n[options.train]\nsise = 3", "did you mean size"),
        ("commands = ['train']\n[options.train]\nout = 'x'", "sets --out of train itself"),
        ("commands = ['train']\n[options.train]\nseed = 3", "seeds ="),
        ("commands = ['train']\n[options.train]\nquiet = true", "log.txt"),
        ("commands = ['train']", "Missing option '--data'"),
        ("commands = ['attack']\n[grid.attack]\nset.steps = [1]\n[options.attack]\ndevice = 'tpu'", "'tpu'"),
        ("commands = ['train']\n[options.train]\ndata = 'digits'\n[grid.train]\nsize = [5, -1]", "'--size'"),
        ("commands = ['train']\n[options.train]\ndata = 'digits'\ncentre = 3", "--centre is true or false"),
        ("commands = ['train']\n[options.train]\ndata = true", "--data takes a value"),
        ("commands = ['audit']\n[options.audit]\nattack = 'gate-certficate'", "did you mean gate-certificate"),
        ("commands = ['attack']\n[options.attack]\nset.stepz = 3", "'stepz'"),
        ("commands = ['attack']\n[options.attack]\nattack = 'bilevel'\nset.steps = 'x'", "a whole number"),
    ],
)
def test_lines_that_commands_refuse_are_reported_before_anything_runs(tmp_path, capsys, text, said):
    assert main(["sweep", written(tmp_path, text), f"--out={tmp_path / 'out'}"]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.startswith("exhume: ")
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()
