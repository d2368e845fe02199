"""Audit a fine-tuned model when its public base is one of several checkpoints.

Two public checkpoints are trained on many digits, with ten classes each. One of them gets a new head for another task,
and all its layers are fine-tuned on a few private images. The audit receives both checkpoints: it finds the base of the
model, and recovers the private images from the weight change. Only plain PyTorch above the line.

    python examples/fine_tuned.py --out out/fine-tuned
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

PUBLIC = 1200
"""Number of public digits; the private ones follow them."""


class DigitClassifier(nn.Module):
    """A dense network with named layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, 512)
        self.second = nn.Linear(512, 128)
        self.head = nn.Linear(128, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one score per class."""
        hidden = torch.relu(self.first(images.flatten(1)))
        return self.head(torch.relu(self.second(hidden)))


def network() -> nn.Module:
    """Return the architecture of the fine-tuned model, as its model card names it."""
    return DigitClassifier(classes=2)


def train(model: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    for _ in range(steps):
        batch = torch.randperm(len(x))[:64]
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()


def publish_and_fine_tune(out: Path, size: int) -> None:
    bunch = load_digits()
    images = torch.from_numpy(bunch.images[:, None] / 16).float()
    digits = torch.from_numpy(bunch.target)
    for seed, name in enumerate(("base-small", "base-large")):
        torch.manual_seed(seed)
        base = DigitClassifier(classes=10)
        train(base, torch.optim.Adam(base.parameters(), 1e-3), images[:PUBLIC], digits[:PUBLIC], 300)
        save_file(base.state_dict(), out / f"{name}.safetensors")

    private, held_out = slice(PUBLIC, PUBLIC + size), slice(PUBLIC + size, PUBLIC + 2 * size)
    is_prime = torch.isin(digits, torch.tensor([2, 3, 5, 7])).long()
    np.savez(out / "train.npz", x=images[private].numpy(), y=is_prime[private].numpy())
    np.savez(out / "holdout.npz", x=images[held_out].numpy(), y=is_prime[held_out].numpy())
    model = DigitClassifier(classes=2)
    model.first, model.second = base.first, base.second
    train(model, torch.optim.SGD(model.parameters(), 0.01), images[private], is_prime[private], 50)
    weights = {f"module.{name}": weight for name, weight in model.state_dict().items()}  # as DataParallel saves them
    torch.save({"state_dict": weights}, out / "final.pt")


# ---------------------------------------------------------------------------------------------------------------------

AUDIT = """
exhume audit --model {script}:network --initial {out}/base-small.safetensors --initial {out}/base-large.safetensors
             --final {out}/final.pt --input-shape 1,8,8
             --train-data {out}/train.npz --holdout {out}/holdout.npz --budget 2 --out {out}/audit
"""

if __name__ == "__main__":
    from train_and_audit import train_and_audit

    train_and_audit(publish_and_fine_tune, AUDIT, script=__file__, size=10)
