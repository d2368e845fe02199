"""Compare what different evidence about one convolutional network gives away.

One network with two convolutions and a dense ReLU layer is trained on digits by AdamW. An attacker holds its final
weights alone, its initial and final weights, a training checkpoint, or one gradient. Prints one row per case and writes
``which_evidence.json`` and a picture; every score stands beside the same score on held-out images.

    PYTHONPATH=src python benchmarks/which_evidence.py --out DIR [--seconds 120]
"""

import argparse
import json
import platform
from collections import OrderedDict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from torch import Tensor, nn
from torch.nn import functional

import exhume
from exhume.attacks import Attack, GateCertificate, Stationarity, WeightDifference
from exhume.records import AttackerView, Dataset

mpl.use("Agg")
import matplotlib.pyplot as plt

SIZE, STEPS = 20, 300
"""Training images, and steps of AdamW."""


NAMES = ("exact", "good", "certified", "false_certificates", "holdout_exact", "holdout_good")
"""Counts that every row has."""


def build() -> nn.Sequential:
    """Build the network with fixed initial weights."""
    torch.manual_seed(0)
    first = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU())
    dense = OrderedDict(flatten=nn.Flatten(), hidden=nn.Linear(256, 512), relu=nn.ReLU(), out=nn.Linear(512, 10))
    return nn.Sequential(OrderedDict(trunk=nn.Sequential(*first)) | dense)


def collect(data: Dataset) -> dict[str, tuple[AttackerView, Attack]]:
    """Train the network once, and return what attackers hold and the attack that suits it."""
    model, x, y = build(), data.to_model(data.train.inputs), data.train.labels.long()
    initial, first = weights_of(model), gradient_of(model, x, y)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(STEPS):
        optimiser.zero_grad()
        torch.autograd.backward(functional.cross_entropy(model(x), y))
        optimiser.step()
    final, last = weights_of(model), gradient_of(model, x, y)

    def view(weights: dict[str, Tensor], **held: Any) -> AttackerView:
        about = {"bounds": data.bounds, "offset": data.offset, "training": {"loss": "ce", "weight_decay": 1e-2}}
        return AttackerView(model=build(), final=weights, input_shape=data.input_shape, **about, **held)

    return {
        "final weights alone": (view(final), Stationarity(candidates=SIZE)),
        "initial and final weights": (view(final, initial=initial), WeightDifference(candidates=SIZE)),
        "checkpoint with AdamW's state": (view(final, optimiser_state=optimiser.state_dict()), GateCertificate()),
        "one gradient, after training": (view(final, gradient=last), GateCertificate()),
        "one gradient, before training": (view(initial, gradient=first), GateCertificate()),
    }


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all weights."""
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def gradient_of(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return the gradient of the mean loss by parameter name."""
    parts = torch.autograd.grad(functional.cross_entropy(model(x), y), list(model.parameters()))
    return dict(zip((name for name, _ in model.named_parameters()), parts, strict=True))


def mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that there are; None where there is none."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def nearest(found: Tensor, images: Tensor) -> Tensor:
    """Return the candidate nearest to each image."""
    if len(found) == 0:
        return torch.full_like(images, 0.5)
    return found[torch.cdist(images.flatten(1), found.flatten(1)).argmin(dim=1)]


def main() -> None:
    """Attack the network with every kind of evidence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--evidence", default="", help="only kinds of evidence whose name contains this")
    parser.add_argument("--seconds", type=float, default=120.0, help="per attack")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = exhume.load("digits", size=SIZE, seed=0, centre=False)
    rows, pictures = [], {"training images": data.train.inputs}
    chosen = {name: held for name, held in collect(data).items() if options.evidence in name}
    for evidence, (view, attack) in chosen.items():
        found = attack.run(view, device="cpu", seconds=options.seconds, keep_partial=True)
        scores = exhume.evaluate(found, data, victim=view).to_json()
        of = "images" if tuple(found.inputs.shape[1:]) == data.input_shape else "features"
        row = {"evidence": evidence, "attack": type(attack).__name__, "of": of, "seconds": round(found.seconds, 1)}
        row |= {name: scores[name] for name in NAMES}
        rows.append(row | {name: mean(scores[name]) for name in ("ssim", "holdout_ssim")})
        print(json.dumps(rows[-1]), flush=True)
        if of == "images":
            pictures[evidence] = nearest(found.inputs, data.train.inputs)
    about = {"torch": torch.__version__, "machine": platform.machine(), "rows": rows}
    (options.out / "which_evidence.json").write_text(json.dumps(about, indent=1) + "\n")
    draw(pictures, options.out / "which-evidence.png")


def draw(pictures: dict[str, Tensor], path: Path) -> None:
    """Draw the first ten images of each kind in a row."""
    figure, axes = plt.subplots(len(pictures), 10, figsize=(8, 0.9 * len(pictures)), squeeze=False)
    for line, (name, images) in zip(axes, pictures.items(), strict=True):
        for place, image in zip(line, images, strict=False):
            place.imshow(image[0].clamp(0, 1), cmap="gray", vmin=0, vmax=1)
            place.set_axis_off()
        line[0].set_title(name, loc="left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
