"""Audit a model that was fine-tuned from a public checkpoint, by somebody who has to guess which.

Two public checkpoints are trained on many digits, ten classes each. One of them gets a new head for another task, and
all its layers are fine-tuned on a few private pictures. The audit is handed both checkpoints: it finds the one the
model grew out of, and from the difference the private pictures. Only plain PyTorch above the line.

    python examples/fine_tuned.py --out out/fine-tuned
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

PUBLIC = 1200
"""Digits that anybody has; the private ones come after them."""


class Reader(nn.Module):
    """Reads digits."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, 512)
        self.second = nn.Linear(512, 128)
        self.head = nn.Linear(128, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return one score a class."""
        hidden = torch.relu(self.first(pictures.flatten(1)))
        return self.head(torch.relu(self.second(hidden)))


def network() -> nn.Module:
    """Return the architecture of the fine-tuned model, which its model card names."""
    return Reader(classes=2)


def train(model: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    for _ in range(steps):
        batch = torch.randperm(len(x))[:64]
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()


def publish_and_fine_tune(out: Path, size: int) -> None:
    bunch = load_digits()
    pictures = torch.from_numpy(bunch.images[:, None] / 16).float()
    digits = torch.from_numpy(bunch.target)
    for seed, name in enumerate(("base-small", "base-large")):
        torch.manual_seed(seed)
        base = Reader(classes=10)
        train(base, torch.optim.Adam(base.parameters(), 1e-3), pictures[:PUBLIC], digits[:PUBLIC], 300)
        save_file(base.state_dict(), out / f"{name}.safetensors")

    private, strangers = slice(PUBLIC, PUBLIC + size), slice(PUBLIC + size, PUBLIC + 2 * size)
    is_prime = torch.isin(digits, torch.tensor([2, 3, 5, 7])).long()
    np.savez(out / "train.npz", x=pictures[private].numpy(), y=is_prime[private].numpy())
    np.savez(out / "holdout.npz", x=pictures[strangers].numpy(), y=is_prime[strangers].numpy())
    model = Reader(classes=2)
    model.first, model.second = base.first, base.second
    train(model, torch.optim.SGD(model.parameters(), 0.01), pictures[private], is_prime[private], 50)
    torch.save(
        {"state_dict": {f"module.{name}": weight for name, weight in model.state_dict().items()}}, out / "final.pt"
    )


# ---------------------------------------------------------------------------------------------------------------------


def audit_command(out: Path) -> list[str]:
    return [
        "exhume", "audit", "--model", f"{__file__}:network",
        "--initial", f"{out}/base-small.safetensors", "--initial", f"{out}/base-large.safetensors",
        "--final", f"{out}/final.pt", "--input-shape", "1,8,8",
        "--train-data", f"{out}/train.npz", "--holdout", f"{out}/holdout.npz", "--budget", "2", "--out", f"{out}/audit",
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/fine-tuned"))
    parser.add_argument("--size", type=int, default=10, help="private pictures to fine-tune on")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    publish_and_fine_tune(options.out, options.size)
    from exhume.cli import main

    command = audit_command(options.out)
    print(" ".join(command))
    sys.exit(main(command[1:]))
