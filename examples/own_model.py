"""Audit a network that somebody else trained: plain PyTorch above, exhume below the line.

The upper half shares no code with exhume: an ``nn.Sequential`` with PyTorch's own initialisation, pixels in [0, 1] as
they come, mini-batches, cross-entropy. It keeps the weights before and after training, as a fine-tuning run or a
federated round does. The lower half is handed those two files, and at the end the pictures, to check what it claims.

    python examples/own_model.py --out out/own-model
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

SHAPE = (1, 8, 8)


def odd_or_even(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )


def digits(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return as many pictures to train on as to hold out, with labels: 0 for even, 1 for odd."""
    bunch = load_digits()
    pictures = torch.from_numpy(bunch.images / 16).float()[:, None]
    labels = torch.from_numpy(bunch.target % 2).long()
    return pictures[:size], labels[:size], pictures[size : 2 * size], labels[size : 2 * size]


def fit(network: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    optimiser = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(pictures)).split(10):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(pictures[batch]), labels[batch]).backward()
            optimiser.step()


def train_and_release(out: Path, size: int, width: int, epochs: int) -> None:
    torch.manual_seed(0)
    pictures, labels, _, _ = digits(size)
    network = odd_or_even(width)
    torch.save(network.state_dict(), out / "initial.pt")
    fit(network, pictures, labels, epochs)
    torch.save(network.state_dict(), out / "final.pt")


# ---------------------------------------------------------------------------------------------------------------------


def audit(out: Path, size: int, width: int) -> None:
    import exhume

    view = exhume.AttackerView(
        model=odd_or_even(width),
        initial=exhume.load_weights(out / "initial.pt"),
        final=exhume.load_weights(out / "final.pt"),
        input_shape=SHAPE,
        bounds=(0.0, 1.0),
    )
    found = exhume.attacks.GateCertificate().run(view, seed=0)

    pictures, labels, held_out, held_out_labels = digits(size)
    data = exhume.Dataset(
        name="digits",
        train=exhume.Split(inputs=pictures, labels=labels),
        holdout=exhume.Split(inputs=held_out, labels=held_out_labels),
        classes=("even", "odd"),
        bounds=(0.0, 1.0),
    )
    result = exhume.evaluate(found, data, victim=view)
    exhume.report(result, out / "report.html")
    print(exhume.verdict(result).sentence)
    print(exhume.verdict(result).detail)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/own-model"))
    parser.add_argument("--size", type=int, default=20, help="pictures to train on")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train_and_release(options.out, options.size, options.width, options.epochs)
    audit(options.out, options.size, options.width)
