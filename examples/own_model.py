"""Audit a network that somebody else trained: plain PyTorch, then one command.

Nothing above the line shares code with exhume: an ``nn.Sequential`` with PyTorch's own initialisation, pixels in [0, 1]
as they come, mini-batches, cross-entropy. It keeps the weights before and after training, as a fine-tuning run or a
federated round does, and the examples it trained on and did not, to check what the audit claims.

    python examples/own_model.py --out out/own-model
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))


def fit(model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(pictures)).split(10):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(pictures[batch]), labels[batch]).backward()
            optimiser.step()


def train_and_release(out: Path, size: int, epochs: int) -> None:
    torch.manual_seed(0)
    model = network()
    torch.save(model.state_dict(), out / "initial.pt")
    bunch = load_digits()
    pictures, labels = (bunch.images[:, None] / 16).astype(np.float32), bunch.target % 2
    np.savez(out / "train.npz", x=pictures[:size], y=labels[:size])
    np.savez(out / "holdout.npz", x=pictures[size : 2 * size], y=labels[size : 2 * size])
    fit(model, torch.from_numpy(pictures[:size]), torch.from_numpy(labels[:size]), epochs)
    torch.save(model.state_dict(), out / "final.pt")


# ---------------------------------------------------------------------------------------------------------------------


def audit_command(out: Path) -> list[str]:
    return [
        "exhume", "audit",
        "--model", f"{__file__}:network", "--initial", f"{out}/initial.pt", "--final", f"{out}/final.pt",
        "--input-shape", "1,8,8", "--train-data", f"{out}/train.npz", "--holdout", f"{out}/holdout.npz",
        "--budget", "2", "--out", f"{out}/audit",
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/own-model"))
    parser.add_argument("--size", type=int, default=20, help="pictures to train on")
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train_and_release(options.out, options.size, options.epochs)
    from exhume.cli import main

    command = audit_command(options.out)
    print(" ".join(command))
    sys.exit(main(command[1:]))
