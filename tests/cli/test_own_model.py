"""The user's own network: factories, weights, and options in words."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exhume
from exhume.cli import main
from exhume.cli.own_model import build_model, find_factory, parse_bounds, parse_seeds
from exhume.core.errors import ExhumeError
from tests.cli.commands import as_json

NETWORK = """
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
"""
DEEPER_NETWORK = """
import exhume

def network():
    return exhume.MLP(width=256).build((1, 8, 8), 1)
"""


@pytest.fixture(scope="module")
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network that a plain PyTorch loop trained, as its owner would have it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_models.py").write_text(NETWORK)
    data = exhume.load("digits", classes="odd-even", size=12, centre=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    save_file(network.state_dict(), folder / "initial.safetensors")
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(network(data.train.inputs), data.train.labels))
        optimiser.step()
    torch.save({"state_dict": network.state_dict(), "epoch": 200}, folder / "final.pt")
    data.save(folder / "data.safetensors")
    return folder


def test_own_weights_of_a_module_or_a_file(
    own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_files)
    weights = ["--initial=initial.safetensors", "--final=final.pt"]
    own = ["audit", *weights, "--input-shape=1,8,8", f"--out={tmp_path}", "--attack=gate-certificate"]
    blind = as_json(capsys, *own, "--model=own_models:network")
    assert blind["certified"] > 0
    assert blind["false_certificates"] is None
    checked = as_json(capsys, *own, "--model=own_models.py:network", "--data=data.safetensors", "--bounds=0,1")
    assert checked["certified"] == blind["certified"]
    assert checked["false_certificates"] == 0
    assert checked["threat_model"]["training inputs"] is False


def test_factories_are_imported_from_files(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(NETWORK)
    name = f"{tmp_path / 'own.py'}:network"
    assert isinstance(build_model(find_factory(name), name), nn.Sequential)
    with pytest.raises(ExhumeError, match="has no function 'other'"):
        find_factory(f"{tmp_path / 'own.py'}:other")


@pytest.mark.parametrize("made", [None, nn.ReLU()])
def test_what_is_no_network_with_weights_is_refused(made: object) -> None:
    with pytest.raises(ExhumeError, match=r"own:make\(\) returned a"):
        build_model(lambda: made, "own:make")


@pytest.mark.parametrize("text", ["seed:", "seed:5-3", "seed:a", "seed:1.5", "seed:0-99999999999", f"seed:{2**63}"])
def test_seeds_that_cannot_be_searched_are_refused(text: str) -> None:
    with pytest.raises(ExhumeError, match="seed"):
        parse_seeds([text])


def test_bounds_depend_on_the_kind_of_input() -> None:
    assert parse_bounds(None, (1, 8, 8)) == (0.0, 1.0)
    assert parse_bounds(None, (30,)) is None
    assert parse_bounds("None", (1, 8, 8)) is None
    assert parse_bounds("-1,1", (30,)) == (-1.0, 1.0)
    for text in ("1,0", "0", "0,1,2", "low,high"):
        with pytest.raises(ExhumeError, match="--bounds"):
            parse_bounds(text, (30,))


@pytest.fixture(scope="module")
def evidence_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint after training with AdamW, and with one gradient."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "own_models.py").write_text(DEEPER_NETWORK)
    data = exhume.load("digits", classes="odd-even", size=12)
    network = exhume.MLP(width=256).build((1, 8, 8), 1, torch.Generator().manual_seed(0))
    inputs, targets = data.to_model(data.train.inputs), data.train.labels[:, None].float()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(50):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(network(inputs), targets))
        optimiser.step()
    torch.save({"model": network.state_dict(), "optimizer": optimiser.state_dict()}, folder / "last.pt")
    optimiser.zero_grad()
    torch.autograd.backward(nn.functional.mse_loss(network(inputs), targets))
    save_file({name: weight.grad for name, weight in network.named_parameters()}, folder / "gradient.safetensors")
    data.save(folder / "data.safetensors")
    (folder / "offset").write_text(str(float(data.offset)))
    return folder


@pytest.mark.parametrize(
    ("files", "held"),
    [
        (["--checkpoint=last.pt"], "optimiser state"),
        (["--final=last.pt", "--gradient=gradient.safetensors"], "gradient"),
    ],
    ids=["checkpoint", "gradient"],
)
def test_a_checkpoint_or_a_gradient_is_audited_without_initial_weights(
    files: list[str],
    held: str,
    evidence_files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(evidence_files)
    own = ["audit", "--model=own_models.py:network", *files, "--input-shape=1,8,8", f"--out={tmp_path}"]
    own += [f"--offset={(evidence_files / 'offset').read_text()}", "--attack=gate-certificate"]
    result = as_json(capsys, *own, "--data=data.safetensors")
    assert result["certified"] > 0
    assert result["false_certificates"] == 0
    assert result["threat_model"][held]
    assert result["threat_model"]["initial weights"] is False
    assert held in (tmp_path / "report.html").read_text()


def test_a_checkpoint_takes_the_place_of_the_final_weights(
    evidence_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evidence_files)
    both = ["--final=last.pt", "--checkpoint=last.pt", "--input-shape=1,8,8", f"--out={tmp_path}"]
    assert main(["audit", "--model=own_models.py:network", *both]) == 2
    assert "either --final or --checkpoint" in capsys.readouterr().err
