"""``exhume.audit`` and ``exhume audit`` share one path: the same input is refused with the same sentence."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exhume
from exhume.cli import main
from exhume.records import AttackerView, Dataset, Split
from tests.auditing.audited_networks import Clock, digits, network, trained

MODELS = """
import torch
from torch import nn

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = plain()

    def forward(self, inputs):
        return {"left": self.body(inputs), "right": inputs}

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(1))
"""


def own_module(name: str) -> nn.Module:
    namespace: dict[str, Callable[[], nn.Module]] = {}
    exec(MODELS, namespace)
    return namespace[name]()


def run_command(folder: Path, view: AttackerView, model: str, data: Dataset | None, *others: str) -> int:
    """Write what Python was given to files, and audit these."""
    folder.mkdir(parents=True)
    (folder / "models.py").write_text(MODELS)
    options = [f"--model={folder / 'models.py'}:{model}", f"--input-shape={','.join(map(str, view.input_shape))}"]
    for name, weights in (("initial", view.initial), ("final", view.final)):
        assert weights is not None
        save_file({key: weight.contiguous() for key, weight in weights.items()}, folder / f"{name}.safetensors")
        options.append(f"--{name}={folder / name}.safetensors")
    if data is not None:
        for option, split in (("train-data", data.train), ("holdout", data.holdout)):
            np.savez(folder / f"{option}.npz", x=split.inputs.numpy(), y=split.labels.numpy())
            options.append(f"--{option}={folder / option}.npz")
    return main(["audit", *options, f"--out={folder / 'out'}", "--device=cpu", *others])


def with_inputs(train: torch.Tensor, holdout: torch.Tensor) -> Dataset:
    labels = digits().train.labels
    return Dataset(
        name="own", classes=("0", "1"), bounds=(0.0, 1.0), train=Split(inputs=train, labels=labels),
        holdout=Split(inputs=holdout, labels=labels[: len(holdout)]),
    )  # fmt: skip


TRAIN, HELD_OUT = digits().train.inputs, digits().holdout.inputs
BAD_DATA = {
    "values up to 255": (TRAIN * 255, HELD_OUT * 255),
    "hold-out set equal to the training set": (TRAIN, TRAIN),
    "another shape": (TRAIN[..., :7], HELD_OUT[..., :7]),
    "NaN": (TRAIN / TRAIN, HELD_OUT),
}


def sentences(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    view: AttackerView,
    model: str,
    data: Dataset | None,
) -> tuple[str, str]:
    """Return what Python and the command line answer to the same input that both refuse."""
    with pytest.raises(exhume.ExhumeError) as refused:
        exhume.audit(view, data)
    assert run_command(tmp_path / "files", view, model, data) == 2
    assert not (tmp_path / "files" / "out").exists()
    return str(refused.value), capsys.readouterr().err.strip()


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_is_refused_with_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_python, on_command_line = sentences(tmp_path, capsys, trained(), "plain", with_inputs(*BAD_DATA[name]))
    assert on_command_line.splitlines()[-1] == f"exhume: {in_python}"


@pytest.mark.parametrize(("model", "shape", "words"), [("Named", (1, 8, 8), "returns a dict")])
def test_models_that_cannot_be_audited_are_refused_with_one_sentence(
    model: str, shape: tuple[int, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = own_module(model)
    weights = {name: weight.clone() for name, weight in module.state_dict().items()}
    moved = {name: weight + 0.1 for name, weight in weights.items()}
    view = AttackerView(model=module, initial=weights, final=moved, input_shape=shape, bounds=None)
    in_python, on_command_line = sentences(tmp_path, capsys, view, model, None)
    assert words in in_python
    assert on_command_line == f"exhume: {in_python}"
    for call in (exhume.assess, exhume.attacks.GateCertificate().run, exhume.attacks.WeightDifference().run):
        with pytest.raises(exhume.ExhumeError) as refused:
            call(view)
        assert str(refused.value) == in_python


def test_both_find_the_same(tmp_path: Path) -> None:
    view, data = trained(), digits()
    audited = exhume.audit(view, data, seed=1, device="cpu", folder=tmp_path / "python")
    assert run_command(tmp_path / "files", view, "plain", data, "--seed=1", "--quiet") == 0
    out = tmp_path / "files" / "out"
    written = json.loads((out / "audit.json").read_text())
    assert written["verdict"]["sentence"] == exhume.verdict(audited).sentence
    assert written["certified"] == audited.evaluations["gate-certificate"].certified
    for name in ("reconstruction.safetensors", "request.json", "result.json"):
        assert (out / "gate-certificate" / name).is_file()
        assert (tmp_path / "python" / "gate-certificate" / name).is_file()


def test_a_budget_stops_named_attacks_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = exhume.attacks.WeightDifference(steps=10**6)
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", Clock())
        audited = exhume.audit(trained(), attacks=[attack], budget=0.1, device="cpu")
    fate = audited.assessments[0].fate
    assert "share of the budget was spent" in fate
    options = ["--attacks=weight-difference", "--set=steps=1e6", "--budget=0.1", "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", Clock())
        assert run_command(tmp_path / "files", trained(), "plain", None, *options) == 0
    written = json.loads((tmp_path / "files" / "out" / "audit.json").read_text())
    assert "share of the budget was spent" in written["applicability"][0]["fate"]
    assert written["candidates"] == len(audited.evaluations["weight-difference"].found)


def test_both_count_the_rows_of_a_text_model_that_moved(tmp_path: Path) -> None:
    module = own_module("Tokens")
    weights = {name: weight.clone() for name, weight in module.state_dict().items()}
    name = next(name for name, weight in weights.items() if weight.ndim == 2)
    moved = weights | {name: weights[name] + torch.arange(len(weights[name]))[:, None].lt(2) * 0.1}
    view = AttackerView(model=module, initial=weights, final=moved, input_shape=(5,), bounds=None)
    audited = exhume.audit(view)
    assert run_command(tmp_path / "files", view, "Tokens", None) == 0
    written = json.loads((tmp_path / "files" / "out" / "audit.json").read_text())
    assert written["verdict"]["sentence"] == exhume.verdict(audited).sentence
    assert "2 of" in written["verdict"]["sentence"]


def test_the_models_of_the_command_line_are_those_of_python() -> None:
    assert repr(own_module("plain")) == repr(network())
