"""Audit a network for patient records whose initial weights were not saved.

A small network learns to classify tumours from a few records of thirty measurements. The initial weights were drawn
after ``torch.manual_seed`` with a small number, as in most scripts. The audit tries seeds until it finds the initial
weights, and then recovers the records from the weight change. Only plain PyTorch above the line.

    python examples/tabular.py --out out/tabular
"""

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

AUDIT = """
exhume audit --model {script}:network --initial seed:0-9999 --final {out}/final.safetensors --input-shape 30
             --train-data {out}/train.npz --holdout {out}/holdout.npz --budget 2 --out {out}/audit
"""

if __name__ == "__main__":
    from train_and_audit import train_and_audit

    train_and_audit(train_and_release, AUDIT, script=__file__, size=12)
