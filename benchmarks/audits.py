"""Audit convolutional networks by one command each, as a user would, and record how each audit ends.

Networks: those of ``deep.py``, and a small ResNet whose only dense layer is the output layer. Evidence: one gradient,
with the statistics of batch normalisation frozen (``gradient``) or taken from the batch (``gradient-batch``), a
checkpoint of AdamW, both ends of a training of all layers, both ends of a training of the dense layers alone, and the
final weights. Prints one row per case and writes ``audits.json``; a row has the exit status, the seconds of the whole
command, the finding and its sentence, and what became of each attack that applies.

    PYTHONPATH=src python benchmarks/audits.py --data-dir DIR --out DIR [--networks plain,resnet] [--budget MINUTES]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import deep
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import exhume
from exhume.records import Dataset

SHAPE = (1, 28, 28)
"""Of the images of MNIST."""
EVIDENCE = ("gradient", "gradient-batch", "checkpoint", "training", "head", "final")
STEPS = 200
"""Steps of a training."""


def plain() -> nn.Module:
    """Return the network without pooling."""
    return deep.build("plain", SHAPE, 1024, 0)


def pool() -> nn.Module:
    """Return the network with max pooling."""
    return deep.build("pool", SHAPE, 1024, 0)


def residual() -> nn.Module:
    """Return the network with batch normalisation and a residual block."""
    return deep.build("residual", SHAPE, 1024, 0)


def resnet() -> nn.Module:
    """Return a residual network whose only dense layer is the output layer."""
    torch.manual_seed(0)
    return exhume.ResNet(channels=16, blocks=(1, 1, 1)).build(SHAPE, 10)


NETWORKS = {each.__name__: each for each in (plain, pool, residual, resnet)}


def is_possible(network: str, evidence: str) -> bool:
    """Return whether a case differs from the others."""
    if evidence == "gradient-batch":
        return network in ("residual", "resnet")
    return (network, evidence) != ("resnet", "head")


def save_evidence(network: str, evidence: str, data: Dataset, folder: Path) -> list[str]:
    """Train as the evidence needs, save what an attacker holds, and return the options for it."""
    model, x, y = NETWORKS[network](), data.to_model(data.train.inputs), data.train.labels.long()
    torch.save(model.state_dict(), folder / "initial.pt")
    final, initial = [f"--final={folder / 'final.pt'}"], [f"--initial={folder / 'initial.pt'}"]
    if evidence.startswith("gradient"):
        torch.save(gradient_of(model, x, y, uses_batch=evidence == "gradient-batch"), folder / "gradient.pt")
        torch.save(torch.load(folder / "initial.pt"), folder / "final.pt")
        return [*final, f"--gradient={folder / 'gradient.pt'}"]
    if evidence == "head":
        model.trunk.eval().requires_grad_(requires_grad=False)
        optimiser: torch.optim.Optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    else:
        optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    deep.train(model, optimiser, x, y, STEPS)
    torch.save(model.state_dict(), folder / "final.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimiser.state_dict()}, folder / "last.pt")
    if evidence == "checkpoint":
        return [f"--checkpoint={folder / 'last.pt'}"]
    return final if evidence == "final" else [*initial, *final]


def gradient_of(model: nn.Module, x: Tensor, y: Tensor, *, uses_batch: bool) -> dict[str, Tensor]:
    """Return the gradient of the mean loss by parameter name."""
    model.train(uses_batch)
    parts = torch.autograd.grad(functional.cross_entropy(model(x), y), list(model.parameters()))
    return {name: part for (name, _), part in zip(model.named_parameters(), parts, strict=True)}


def audit(network: str, evidence: str, data: Dataset, folder: Path, minutes: float) -> dict[str, Any]:
    """Audit one network by the command line, and return how the audit ended."""
    folder.mkdir(parents=True, exist_ok=True)
    options = save_evidence(network, evidence, data, folder)
    for name, part in (("train-data", data.train), ("holdout", data.holdout)):
        np.savez(folder / f"{name}.npz", x=part.inputs[: len(data.train)].numpy())
        options.append(f"--{name}={folder / name}.npz")
    words = ["audit", f"--model=audits:{network}", f"--input-shape={','.join(map(str, SHAPE))}", f"--budget={minutes}"]
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    command = [sys.executable, "-c", "from exhume.cli import main; raise SystemExit(main())"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *words, *options, f"--out={folder / 'audit'}", "--device=cpu"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    row = {"exit_status": done.returncode, "seconds": round(time.perf_counter() - started, 1)}
    if not (folder / "audit" / "audit.json").exists():
        return row | {"message": done.stderr.strip()[-500:]}
    written = json.loads((folder / "audit" / "audit.json").read_text())
    ran = {one["attack"]: one["fate"] for one in written["applicability"] if one["fate"]}
    counts = {name: written[name] for name in ("certified", "false_certificates") if name in written}
    return row | counts | {"finding": written["verdict"]["finding"], "sentence": written["verdict"]["sentence"]} | ran


def main() -> None:
    """Audit every network with every kind of evidence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--out", type=Path, default=Path("out/audits"))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--evidence", default=",".join(EVIDENCE))
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--budget", type=float, default=1.0)
    options = parser.parse_args()
    data = exhume.load("mnist", size=options.size, seed=0, centre=False, data_dir=options.data_dir)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for network in options.networks.split(","):
        for evidence in (one for one in options.evidence.split(",") if is_possible(network, one)):
            ended = audit(network, evidence, data, options.out / f"{network}-{evidence}", options.budget)
            rows.append({"network": network, "evidence": evidence} | ended)
            print(json.dumps(rows[-1]), flush=True)
    about = {"size": options.size, "budget_minutes": options.budget, "torch": torch.__version__, "rows": rows}
    (options.out / "audits.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
