"""Recover images from the final weights alone of networks that begin with convolutions (``FeatureEdges``).

Networks: a 3×3 convolution and ReLU, as it is (``plain``), strided, or below average or max pooling; or two
convolutions (``two``); then a dense ReLU layer and ten outputs. Training on MNIST at 14×14 with cross-entropy, full
batches and momentum 0.9, in phases of ``STEPSxRATE``. The attacker holds the final weights alone.

A row counts features within 2 % and images within 0.02 in every pixel, of the training set and of held-out images. It
says how far outside the span of the dense layer's weights features of training images, held-out images and mixtures
lie, and mixtures outside the exact span of the training images' features. The attack certifies nothing.
Prints one row per network and writes ``final_features.json``.

    EXHUME_DATA=DIR PYTHONPATH=src python benchmarks/final_features.py --out DIR [--cells plain:8:200:10] [--seeds 0,1]

Rows are added to those of an earlier call with the same DIR.
"""

import argparse
import itertools
import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import Tensor, nn
from torch.nn import functional

from exhume.attacks import FeatureEdges
from exhume.core.errors import ExhumeError
from exhume.inversion.through_trunk import trunk_of
from exhume.records import AttackerView
from exhume.studies.tasks import draw

EXACT = 0.02
"""Largest error of a pixel of an exact image, and of the features of a found one, relative to their norm."""
MIXTURES = 200
"""Number of random mixtures of training images."""


def build(network: str, channels: int, units: int, side: int) -> nn.Sequential:
    """Build a network with a layer named ``hidden`` above its trunk."""
    stride = 2 if network == "strided" else 1
    trunk: list[nn.Module] = [nn.Conv2d(1, channels, 3, stride=stride, padding=1), nn.ReLU()]
    if network in ("average", "max"):
        trunk.append((nn.AvgPool2d if network == "average" else nn.MaxPool2d)(2))
    if network == "two":
        trunk += [nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU()]
    below = nn.Sequential(*trunk, nn.Flatten())
    size = below(torch.zeros(1, 1, side, side)).shape[1]
    parts = OrderedDict(trunk=below, hidden=nn.Linear(size, units), relu=nn.ReLU(), out=nn.Linear(units, 10))
    return nn.Sequential(parts)


def train(model: nn.Module, x: Tensor, y: Tensor, decay: float, schedule: str) -> None:
    """Train on the whole set in every step, in phases such as ``12000x0.1+8000x0.01``."""
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=decay)
    for phase in schedule.split("+"):
        steps, rate = phase.split("x")
        optimiser.param_groups[0]["lr"] = float(rate)
        for _ in range(int(steps)):
            optimiser.zero_grad()
            torch.autograd.backward(functional.cross_entropy(model(x), y))
            optimiser.step()


def measure_span(view: AttackerView, x: Tensor, held_out: Tensor) -> dict[str, Any]:
    """Measure how far features lie outside the span of the dense layer, relative to their norm."""
    trunk = trunk_of(view, "hidden", view.final)
    shares = torch.rand(MIXTURES, len(x), generator=torch.Generator().manual_seed(0)).log().neg()
    mixtures = torch.einsum("ms,s...->m...", (shares / shares.sum(1, keepdim=True)).to(x), x)
    with torch.no_grad():
        own, others, mixed = (
            functional.pad(trunk(images.double()), (0, 1), value=1.0) for images in (x, held_out, mixtures)
        )
    rows = torch.cat([view.final["hidden.weight"], view.final["hidden.bias"][:, None]], 1).double()
    _, strengths, right = torch.linalg.svd(rows, full_matrices=False)
    basis, exact = right[: len(x)].T, torch.linalg.qr(own.T).Q

    def outside(features: Tensor, span: Tensor) -> Tensor:
        return (features - features @ span @ span.T).norm(dim=1) / features.norm(dim=1)

    filters = torch.linalg.svdvals(view.final["trunk.0.weight"].double().flatten(1))
    figures = {
        "gap": strengths[len(x) - 1] / strengths[len(x)],
        "training images outside, at most": outside(own, basis).max(),
        "held-out images outside, at least": outside(others, basis).min(),
        "mixtures outside, mean": outside(mixed, basis).mean(),
        "mixtures outside the exact span, mean": outside(mixed, exact).mean(),
        "filters": (filters > 0.05 * filters[0]).sum(),
    }
    return {name: float(f"{float(value):.3g}") for name, value in figures.items()}


def count_near(distances: Tensor) -> int:
    """Return how many columns some row is near to."""
    return int((distances.amin(dim=0) < EXACT).sum()) if len(distances) else 0


def measure(
    cell: str, decay: float, schedule: str, precision: str, seed: int, *, centred: bool = True
) -> dict[str, Any]:
    """Train one network and attack its final weights."""
    network, channels, units, size = cell.split(":")
    data = draw("mnist", "all", size=int(size), held_out=400, seed=seed, shrink=2)
    data = data if centred else replace(data, offset=None)
    kind = torch.float64 if precision == "float64" else torch.float32
    x, y = data.to_model(data.train.inputs).to(kind), data.train.labels.long()
    held_out = data.to_model(data.holdout.inputs).to(kind)
    torch.manual_seed(seed)
    model = build(network, int(channels), int(units), data.input_shape[-1]).to(kind)
    train(model, x, y, decay, schedule)
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    view = AttackerView(
        model=model, final=final, input_shape=data.input_shape, bounds=data.bounds, offset=data.offset
    )  # fmt: skip
    row = {"network": network, "channels": int(channels), "units": int(units), "images": int(size)}
    row |= {"weight decay": decay, "schedule": schedule, "precision": precision, "seed": seed, "centred": centred}
    row |= measure_span(view, x, held_out)
    counts = {"rank": 0, "candidates": 0, "features": 0, "held-out features": 0, "exact": 0, "held-out exact": 0}
    try:
        found = FeatureEdges().run(view, seed=seed, device="cpu")
    except ExhumeError as reason:
        return row | counts | {"seconds": 0.0, "message": str(reason)}
    counts |= {"rank": found.diagnostics["training_size_estimate"], "candidates": len(found)}
    has_images, trunk = found.inputs.shape[1:] == x.shape[1:], trunk_of(view, "hidden", final)
    features = trunk(data.to_model(found.inputs).double()) if has_images else found.inputs.double()
    for name, images in (("", x), ("held-out ", held_out)):
        own = trunk(images.double())
        near = torch.cdist(features.detach(), own.detach()) / own.detach().norm(dim=1)
        counts[f"{name}features"] = count_near(near)
        if has_images:
            errors = (data.to_model(found.inputs)[:, None] - images[None]).flatten(2).abs().amax(dim=2)
            counts[f"{name}exact"] = count_near(errors)
    return row | counts | {"seconds": round(found.seconds, 1), "message": found.message}


def main(arguments: list[str] | None = None) -> None:
    """Measure every combination of the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cells", default="plain:8:200:10", help="NETWORK:CHANNELS:UNITS:IMAGES, several by commas.")
    parser.add_argument("--decays", default="0.003")
    parser.add_argument("--schedules", default="12000x0.1+15000x0.03+20000x0.01")
    parser.add_argument("--precision", default="float64", help="Precision of the training: float32 or float64.")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--uncentred", action="store_true", help="Leave pixels in [0, 1].")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "final_features.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    lists = (options.cells.split(","), options.decays.split(","), options.schedules.split(","))
    for cell, decay, schedule, seed in itertools.product(*lists, options.seeds.split(",")):
        rows.append(measure(cell, float(decay), schedule, options.precision, int(seed), centred=not options.uncentred))
        print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
        summary = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
        path.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
