"""Audit a network for patient records, from its released weights and a seed that nobody wrote down.

A small network learns to tell tumours apart from a few records of thirty measurements. The initial weights were never
saved; but they came from ``torch.manual_seed`` with a small number, as they mostly do. The audit tries seeds until it
finds the start that the weights grew out of, and then reads the records off the difference. Only plain PyTorch above
the line.

    python examples/tabular.py --out out/tabular
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn

SECRET_SEED = 1234


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 1))


def train_and_release(out: Path, size: int) -> None:
    bunch = load_breast_cancer()
    records = StandardScaler().fit_transform(bunch.data).astype(np.float32)
    labels = bunch.target
    np.savez(out / "train.npz", x=records[:size], y=labels[:size])
    np.savez(out / "holdout.npz", x=records[size : 4 * size], y=labels[size : 4 * size])

    torch.manual_seed(SECRET_SEED)
    model = network()
    x, y = torch.from_numpy(records[:size]), torch.from_numpy(labels[:size]).float()[:, None]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(500):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimiser.step()
    save_file(model.state_dict(), out / "final.safetensors")


# ---------------------------------------------------------------------------------------------------------------------


def audit_command(out: Path) -> list[str]:
    return [
        "exhume", "audit", "--model", f"{__file__}:network",
        "--initial", "seed:0-9999", "--final", f"{out}/final.safetensors", "--input-shape", "30",
        "--train-data", f"{out}/train.npz", "--holdout", f"{out}/holdout.npz", "--budget", "2", "--out", f"{out}/audit",
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/tabular"))
    parser.add_argument("--size", type=int, default=12, help="records to train on")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train_and_release(options.out, options.size)
    from exhume.cli import main

    command = audit_command(options.out)
    print(" ".join(command))
    sys.exit(main(command[1:]))
