"""Bad input from end to end: one sentence on standard error, exit code 2, nothing half-written."""

import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exhume
from exhume.cli import main

FACTORY = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))

def broken():
    raise RuntimeError("no such luck\\nand a second line")

def leaving():
    raise SystemExit(0)

def nothing():
    return None
"""


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """Run a command that must be refused, and return its sentence."""

    def run(*arguments: object) -> str:
        before = snapshot(tmp_path)
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert status == 2, err
        assert out == ""
        *before_it, sentence = err.splitlines()
        assert sentence.startswith("exhume: ")
        assert not [line for line in before_it if "Traceback" in line or "exhume:" in line]
        assert snapshot(tmp_path) == before, "nothing half-written"
        return err

    return run


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return what a folder holds, but for the byte code that Python keeps beside imported modules."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Path]:
    """A stranger's module and weights, which are fine as they are."""
    (tmp_path / "factory.py").write_text(FACTORY)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    save_file(network.state_dict(), tmp_path / "initial.safetensors")
    torch.save(network.state_dict(), tmp_path / "final.pt")
    return {name: tmp_path / file for name, file in (("initial", "initial.safetensors"), ("final", "final.pt"))}


def attack_own(tmp_path: Path, weights: dict[str, Path], factory: str = "network", shape: str = "1,4,4") -> list[str]:
    options = [f"--{name}={path}" for name, path in weights.items()]
    return [
        "attack", f"--model={tmp_path / 'factory.py'}:{factory}", *options, f"--input-shape={shape}",
        f"--out={tmp_path / 'found'}",
    ]  # fmt: skip


def tar_bomb(path: Path) -> Path:
    """A small archive of a large file, and of one that leads elsewhere."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, size in (("storages", 2**24), ("../../elsewhere", 10)):
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(b"\0" * size))
    return path


class Bomb:
    """Leaves a file behind when unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("name", ["bomb.tar", "bomb.tar.gz", "bomb.pt", "bomb.safetensors"])
def test_tar_bomb_as_weights(name: str, tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]) -> None:
    bomb = tar_bomb(tmp_path / name)
    assert str(bomb) in refused(*attack_own(tmp_path, own | {"final": bomb}))


@pytest.mark.parametrize("name", ["bomb.tar", "bomb.tar.gz", "bomb.npz", "bomb.csv"])
def test_tar_bomb_as_data(name: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    bomb = tar_bomb(tmp_path / name)
    label = ["--label=y"] if name.endswith(".csv") else []
    assert str(bomb) in refused("train", "--data", bomb, *label, "--out", tmp_path / "run")


def test_zip_bomb_as_weights(tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", b"\0" * 2**24)
    assert "unpack to" in refused(*attack_own(tmp_path, own | {"final": tmp_path / "bomb.pt"}))


@pytest.mark.parametrize("saved_by", ["pickle", "torch"])
def test_pickle_posing_as_weights_is_not_run(
    saved_by: str, tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]
) -> None:
    path, trace = tmp_path / "weights.pt", tmp_path / "executed"
    if saved_by == "pickle":
        path.write_bytes(pickle.dumps(Bomb(trace)))
    else:
        torch.save({"0.weight": Bomb(trace)}, path)
    assert "would run code" in refused(*attack_own(tmp_path, own | {"initial": path}))
    assert not trace.exists()


def test_pickled_module_is_refused(tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    assert "state_dict" in refused(*attack_own(tmp_path, own | {"final": tmp_path / "module.pt"}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(
    value: float, tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]
) -> None:
    weights = torch.load(own["final"], weights_only=True)
    weights["1.weight"][0, 0] = value
    torch.save(weights, own["final"])
    assert "1.weight" in refused(*attack_own(tmp_path, own))


def test_mismatched_shapes(tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]) -> None:
    weights = torch.load(own["final"], weights_only=True)
    torch.save(weights | {"1.weight": torch.zeros(8, 9)}, own["final"])
    assert "(8, 9)" in refused(*attack_own(tmp_path, own))
    torch.save({"other": torch.zeros(1)}, own["final"])
    assert "do not belong to this model" in refused(*attack_own(tmp_path, own))


def test_input_shape_that_the_model_does_not_take(
    tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]
) -> None:
    assert "(1, 5, 5)" in refused(*attack_own(tmp_path, own, shape="1,5,5"))


@pytest.mark.parametrize(
    ("factory", "word"),
    [
        ("broken", "no such luck"),
        ("leaving", "SystemExit: 0"),
        ("nothing", "NoneType"),
        ("absent", "absent"),
        ("", "--model"),
    ],
)
def test_factories_that_return_no_network_are_refused(
    factory: str, word: str, tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]
) -> None:
    assert word in refused(*attack_own(tmp_path, own, factory))


def test_a_script_that_exits_on_import_is_refused(
    tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]
) -> None:
    (tmp_path / "factory.py").write_text("import sys\nsys.exit()")
    assert "cannot be imported: SystemExit" in refused(*attack_own(tmp_path, own))


@pytest.mark.parametrize("place", ["no_such_package.module:network", "no/such/file.py:network", "just_a_word"])
def test_models_that_cannot_be_found_are_refused(place: str, own: dict[str, Path], refused: Callable[..., str]) -> None:
    refused("attack", "--model", place, "--final", own["final"], "--input-shape=1,4,4", "--out=nowhere")


@pytest.mark.parametrize(
    "options",
    [
        ["--input-shape=1,x"],
        ["--input-shape=0"],
        ["--input-shape=1,4,4", "--bounds=1,0"],
        ["--input-shape=1,4,4", "--bounds=dark,bright"],
        ["--input-shape=1,4,4", "--offset=1,2"],
        ["--input-shape=1,4,4", "--attack=bilevel", "--trained-with=loss=mse", "--trained-with=weight_decay=lots"],
        [],
    ],
)
def test_bad_options_are_refused(
    options: list[str], tmp_path: Path, own: dict[str, Path], refused: Callable[..., str]
) -> None:
    model = f"--model={tmp_path / 'factory.py'}:network"
    refused("attack", model, "--final", own["final"], *options, "--out", tmp_path / "found")


def test_empty_folder(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "empty").mkdir()
    for arguments in (["train", "--data"], ["attack"], ["evaluate"], ["audit"], ["data", "show"]):
        out = [] if arguments[0] == "data" else ["--out", tmp_path / "run"]
        assert str(tmp_path / "empty") in refused(*arguments, tmp_path / "empty", *out)


def test_label_column_that_is_missing(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    out = ["--out", tmp_path / "run"]
    assert "a, b" in refused("train", "--data", tmp_path / "table.csv", "--label", "target", *out)
    assert "column" in refused("train", "--data", tmp_path / "table.csv", *out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    assert main(["train", "--data=digits", "--size=10", "--width=32", "--depth=1", f"--out={folder}", "--quiet"]) == 0
    return folder


def test_unknown_attack_and_setting(run: Path, refused: Callable[..., str]) -> None:
    assert "did you mean weight-difference" in refused("attack", run, "--attack", "weight-diference")
    named = ["attack", run, "--attack", "weight-difference"]
    assert "did you mean steps" in refused(*named, "--set", "stepz=3")
    assert "whole number" in refused(*named, "--set", "steps=many")
    assert "NAME=VALUE" in refused(*named, "--set", "steps")
    assert "not among" in refused(*named, "--set", "gate-certificate.starts=3")
    assert "twice" in refused(*named, "--attack", "weight-difference")
    assert "No attack has a setting 'stepz'; did you mean steps." in refused("attack", run, "--set", "stepz=3")
    assert "There is no attack 'gate'" in refused("attack", run, "--set", "gate.steps=3")
    assert "NAME=VALUE" in refused("attack", run, "--set", "steps")
    assert ". Try 'exhume attack --help'." in refused("attack", run, "--device", "tpu")


def test_too_large_numbers_are_refused(run: Path, refused: Callable[..., str]) -> None:
    named = ["attack", run, "--attack", "weight-difference"]
    assert "not enough memory" in refused(*named, "--set", "candidates=1_000_000_000_000_000")
    assert "--seed" in refused(*named, "--seed", 2**63)


def test_wrong_run_folder(tmp_path: Path, refused: Callable[..., str]) -> None:
    for command in ("attack", "audit", "evaluate"):
        assert str(tmp_path / "nowhere") in refused(command, tmp_path / "nowhere")
    (tmp_path / "victim.safetensors").write_bytes(b"not a victim")
    assert "victim.safetensors" in refused("attack", tmp_path)


def test_run_folder_or_model_but_not_both(run: Path, refused: Callable[..., str]) -> None:
    refused("attack")
    refused("attack", run, "--model", "a:b")
    refused("attack", run, "--final", "weights.pt")


def test_damaged_records(run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    for name in ("victim", "data"):
        (tmp_path / f"{name}.safetensors").write_bytes((run / f"{name}.safetensors").read_bytes()[:-100])
    assert "truncated" in refused("audit", tmp_path)
    (tmp_path / "victim.safetensors").write_bytes((run / "victim.safetensors").read_bytes())
    assert "data.safetensors" in refused("audit", tmp_path)


def test_comparison_with_other_data(run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "note.txt").write_text("not a data set")
    assert "note.txt" in refused("audit", run, "--data", tmp_path / "note.txt", "--out", tmp_path / "out")
    assert "--train-data" in refused("audit", run, "--data", tmp_path / "arrays.npz", "--out", tmp_path / "out")
    exhume.load("faces", size=10).save(tmp_path / "faces.safetensors")
    assert "shape" in refused("audit", run, "--data", tmp_path / "faces.safetensors", "--out", tmp_path / "out")


def test_folder_that_cannot_be_written(run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "file").write_text("in the way")
    for arguments in (
        ["train", "--data=digits", "--size=10", "--width=8"],
        ["attack", run],
        ["audit", run],
        ["demo"],
        ["data", "show", "digits"],
    ):
        assert "cannot be written" in refused(*arguments, "--out", tmp_path / "file" / "below")


def test_another_network_is_not_replaced_by_accident(run: Path, refused: Callable[..., str]) -> None:
    before = (run / "victim.safetensors").read_bytes()
    assert "--overwrite" in refused("train", "--data=digits", "--size=12", "--width=32", f"--out={run}")
    assert (run / "victim.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [
        ["--data=nowhere"],
        ["--data=digits", "--classes=odd-evn"],
        ["--data=digits", "--size=0"],
        ["--data=digits", "--size=many"],
        ["--data=digits", "--size=100000"],
        ["--data=digits", "--loss=mae"],
        ["--data=digits", "--loss=bce", "--size=20"],
        ["--data=digits", "--steps=3", "--epochs=3"],
        ["--data=digits", "--momentum=2"],
        ["--data=digits", "--colour=red"],
        ["--data=digits", "--label=y"],
        ["--data=digits", "--device=tpu"],
        ["--data=breast-cancer", "--architecture=convnet"],
        ["--data=digits", "--size=20", "--lr=1e9"],
        [],
    ],
)
def test_bad_training_options_are_refused(options: list[str], tmp_path: Path, refused: Callable[..., str]) -> None:
    refused("train", *options, "--out", tmp_path / "run")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_missing_devices_are_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "CUDA" in refused("train", "--data=digits", "--size=10", "--device=cuda", "--out", tmp_path / "run")


def test_sources_that_cannot_be_fetched_are_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "faces" in refused("data", "fetch", "faces", "--data-dir", tmp_path)
    assert "mnst" in refused("data", "fetch", "mnst", "--data-dir", tmp_path)


def test_an_error_in_exhume_itself_has_its_own_exit_code(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(exhume.attacks.WeightDifference, "check", fail)
    assert main(["attack", str(run), "--attack=weight-difference", f"--out={tmp_path}"]) == 70
    *trace, last = capsys.readouterr().err.splitlines()
    assert "Traceback" in trace[0]
    assert last.startswith("exhume: This is an error in exhume itself (ZeroDivisionError: division by zero)")


def test_debug_prints_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "nowhere", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_refused_command_prints_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "nowhere", "--json"]) == 2
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(capsys.readouterr().out)
