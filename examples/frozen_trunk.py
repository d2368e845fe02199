"""Recover the images behind a head that was fine-tuned on frozen convolutions.

A small convolutional network is trained on public digits. Its convolutions are frozen, and a new head (a dense layer
with ReLU and an output layer) is trained on a few private images. The attacker knows the network before and after. The
weight change of the head gives the *features* of the private images away, and the features give the images away.

    python examples/frozen_trunk.py --out out/frozen-trunk
"""

import argparse
from collections import OrderedDict
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import exhume

PUBLIC = 1200
"""Number of public digits; the private ones follow them."""


def network(width: int = 768) -> nn.Sequential:
    """Return a trunk of two convolutions, and a head."""
    trunk = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()
    )
    parts = OrderedDict(trunk=trunk, hidden=nn.Linear(256, width), relu=nn.ReLU(), out=nn.Linear(width, 10))
    return nn.Sequential(parts)


def train(model: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    """Train on the whole set in every step."""
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()


def main() -> None:
    """Train in public, fine-tune in private, attack, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/frozen-trunk"))
    parser.add_argument("--size", type=int, default=10, help="number of private images")
    parser.add_argument("--steps", type=int, default=20, help="steps of the fine-tuning")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    bunch = load_digits()
    images = torch.from_numpy(bunch.images[:, None] / 16).float()
    labels = torch.from_numpy(bunch.target)
    torch.manual_seed(0)
    model = network()
    train(model, torch.optim.Adam(model.parameters(), 1e-3), images[:PUBLIC], labels[:PUBLIC], 30)

    private = images[PUBLIC : PUBLIC + options.size]
    model.hidden, model.out = nn.Linear(256, 768), nn.Linear(768, 10)  # a new head
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    head = [*model.hidden.parameters(), *model.out.parameters()]
    train(model, torch.optim.SGD(head, 0.05), private, labels[PUBLIC : PUBLIC + options.size], options.steps)

    # -----------------------------------------------------------------------------------------------------------------
    view = exhume.AttackerView(model=model, initial=initial, final=model.state_dict(), input_shape=(1, 8, 8))
    found = exhume.attacks.GateCertificate().run(view, seed=0)
    print(found.message)
    found.save(options.out / "found.safetensors")
    if tuple(found.inputs.shape[1:]) == (1, 8, 8):
        errors = (found.inputs[:, None] - private[None]).flatten(2).abs().amax(dim=2)
        print(f"{int((errors.amin(dim=0) < 0.02).sum())} of {options.size} private images are exact to 0.02.")
    else:
        print("The features came out, and do not determine the images.")


if __name__ == "__main__":
    main()
