"""Audit what a federated client sends: a round of plain federated averaging, then one command on two state dicts.

Nothing above the line shares code with exhume. A server sends its weights to a client, which trains for five local
epochs on twelve private images and sends its weights back. The server holds both, and so does whoever listens.

    python examples/federated.py --out out/federated

``examples/flower_strategy.py`` does the same inside a strategy of Flower.
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

LOCAL_EPOCHS, LOCAL_BATCH = 5, 8


def network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def fit_locally(
    weights: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Train as a client does, from the weights of the server; return the client's weights."""
    model = network()
    model.load_state_dict(weights)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(LOCAL_EPOCHS):
        for batch in torch.randperm(len(images)).split(LOCAL_BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    return model.state_dict()


def run_a_round(out: Path, size: int) -> None:
    torch.manual_seed(0)
    sent = network().state_dict()
    torch.save(sent, out / "sent.pt")
    bunch = load_digits()
    images, labels = (bunch.images[:, None] / 16 - 0.3).astype(np.float32), bunch.target
    np.savez(out / "client.npz", x=images[:size], y=labels[:size])
    np.savez(out / "holdout.npz", x=images[size : 2 * size], y=labels[size : 2 * size])
    received = fit_locally(sent, torch.from_numpy(images[:size]), torch.from_numpy(labels[:size]))
    torch.save(received, out / "received.pt")


# ---------------------------------------------------------------------------------------------------------------------

AUDIT = """
exhume audit --model {script}:network --initial {out}/sent.pt --final {out}/received.pt --input-shape 1,8,8
             --bounds=-0.3,0.7 --train-data {out}/client.npz --holdout {out}/holdout.npz
             --attack gate-certificate --out {out}/audit
"""

if __name__ == "__main__":
    from train_and_audit import train_and_audit

    train_and_audit(run_a_round, AUDIT, script=__file__, size=12)
