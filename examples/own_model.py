"""Audit a network that somebody else trained: plain PyTorch above, exhume below the line.

The upper half shares no code with exhume: an ``nn.Sequential`` with PyTorch's own initialisation, pixels in [0, 1] as
they come, mini-batches, cross-entropy. It keeps the weights before and after training, as a fine-tuning run or a
federated round does. The lower half is handed those two files, and at the end the faces, to check what it claims.

    python examples/own_model.py --out out/own-model
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from skimage.data import lfw_subset
from torch import nn

SHAPE = (1, 25, 25)


def face_detector(width: int = 1024) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(625, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )


def photographs(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return as many pictures to train on as to hold out, with labels: 0 for a face, 1 for anything else."""
    pictures = torch.from_numpy(np.float32(lfw_subset()))[:, None]
    labels = torch.arange(200) // 100  # a hundred faces come first
    half = size // 2
    train = torch.cat([torch.arange(half), torch.arange(100, 100 + half)])
    return pictures[train], labels[train], pictures[train + half], labels[train + half]


def fit(network: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    optimiser = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(pictures)).split(10):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(pictures[batch]), labels[batch]).backward()
            optimiser.step()


def train_and_release(out: Path, size: int, width: int, epochs: int) -> None:
    torch.manual_seed(0)
    pictures, labels, _, _ = photographs(size)
    network = face_detector(width)
    torch.save(network.state_dict(), out / "initial.pt")
    fit(network, pictures, labels, epochs)
    torch.save(network.state_dict(), out / "final.pt")


# ---------------------------------------------------------------------------------------------------------------------


def audit(out: Path, size: int, width: int) -> None:
    import exhume

    view = exhume.AttackerView(
        model=face_detector(width),
        initial=exhume.load_weights(out / "initial.pt"),
        final=exhume.load_weights(out / "final.pt"),
        input_shape=SHAPE,
        bounds=(0.0, 1.0),
    )
    found = exhume.attacks.GateCertificate().run(view, seed=0)

    pictures, labels, held_out, held_out_labels = photographs(size)
    data = exhume.Dataset(
        name="photographs",
        train=exhume.Split(inputs=pictures, labels=labels),
        holdout=exhume.Split(inputs=held_out, labels=held_out_labels),
        classes=("face", "other"),
        bounds=(0.0, 1.0),
    )
    result = exhume.evaluate(found, data, victim=view)
    exhume.report(result, out / "report.html")
    print(exhume.verdict(result).sentence)
    print(exhume.verdict(result).detail)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/own-model"))
    parser.add_argument("--size", type=int, default=40, help="pictures to train on")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train_and_release(options.out, options.size, options.width, options.epochs)
    audit(options.out, options.size, options.width)
