"""Audit a network with its own training script: plain PyTorch, then one command.

Nothing above the line shares code with exhume: an ``nn.Sequential`` with PyTorch's own initialisation, pixels in [0, 1]
without centring, mini-batches, cross-entropy. The script saves the weights before and after training, as fine-tuning or
a federated round does. It also saves the training examples and as many held-out examples, so that the audit can check
its claims.

    python examples/own_model.py --out out/own-model
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

EPOCHS = 100


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))


def fit(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(10):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()


def train_and_release(out: Path, size: int) -> None:
    torch.manual_seed(0)
    model = network()
    torch.save(model.state_dict(), out / "initial.pt")
    bunch = load_digits()
    images, labels = (bunch.images[:, None] / 16).astype(np.float32), bunch.target % 2
    np.savez(out / "train.npz", x=images[:size], y=labels[:size])
    np.savez(out / "holdout.npz", x=images[size : 2 * size], y=labels[size : 2 * size])
    fit(model, torch.from_numpy(images[:size]), torch.from_numpy(labels[:size]))
    torch.save(model.state_dict(), out / "final.pt")


# ---------------------------------------------------------------------------------------------------------------------

AUDIT = """
exhume audit --model {script}:network --initial {out}/initial.pt --final {out}/final.pt --input-shape 1,8,8
             --train-data {out}/train.npz --holdout {out}/holdout.npz --budget 2 --out {out}/audit
"""

if __name__ == "__main__":
    from train_and_audit import train_and_audit

    train_and_audit(train_and_release, AUDIT, script=__file__, size=20)
