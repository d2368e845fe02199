"""Measure certified features and images of networks that begin with convolutions.

Networks: two convolutions and a dense ReLU layer, without pooling, with max pooling, and with batch normalisation and
a residual block. Evidence: one gradient at the initial weights, one after Adam steps, AdamW's state (after any number
of steps: ``adamw-100``), and a head trained by 100 or 500 steps of SGD above frozen convolutions; and without the dense
ReLU layer, one gradient of nine images of different classes, at the initial weights and after Adam steps on the other
images. Prints one row per case and writes ``deep.json``; a row counts features certified and within 1 %, images
certified, exact (largest error below 0.02) and good (mean squared error below 0.01), false certificates, and seconds.

    PYTHONPATH=src python benchmarks/deep.py --data-dir DIR --out DIR [--networks plain,pool] [--evidence gradient]

With ``--features-known`` the attack is skipped, and the true features are inverted. With ``--separation`` features are
separated by the units that nearly all images switch alike, without a search for rows. With ``--visibility`` nothing is
attacked; it measures how far features are from linear between images.
"""

import argparse
import json
import platform
import time
from collections import Counter, OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import Tensor, nn
from torch.nn import functional

import exhume
from exhume.attacks import Attack, GateCertificate, LastLayer
from exhume.attacks.gates.problem import pose_problem
from exhume.attacks.gates.separation import separate
from exhume.clues.clues import clues_of
from exhume.clues.first_layer import backward_signals
from exhume.core.run_context import RunContext
from exhume.inversion.conditioning import find_footprints, jacobian
from exhume.inversion.gauss_newton import InputBox
from exhume.inversion.invert import invert
from exhume.inversion.through_trunk import trunk_of
from exhume.models.lower_layers import LowerLayers
from exhume.records import AttackerView, Dataset

EXACT = 0.02
"""Largest error of a pixel of an exact image."""
GOOD = 0.01
"""Largest mean squared error of a good image."""


class Residual(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        """Add two convolutions to the input."""
        return torch.relu(inputs + self.norm2(self.second(torch.relu(self.norm1(self.first(inputs))))))


def _plain(channels: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()]


def _pool(channels: int) -> list[nn.Module]:
    below = [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return [*below, nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]


def _residual(channels: int) -> list[nn.Module]:
    below = [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), Residual(16)]
    return [*below, nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()]


NETWORKS = {"plain": _plain, "pool": _pool, "residual": _residual}
EVIDENCE = ("gradient", "gradient-after-200", "adamw-300", "head-100", "head-500", "last-layer", "last-layer-trained")


def build(network: str, shape: tuple[int, ...], width: int, seed: int) -> nn.Sequential:
    """Build a network with a layer named ``hidden`` above its trunk; without it for a width of 0."""
    torch.manual_seed(seed)
    trunk = nn.Sequential(*NETWORKS[network](shape[0]), nn.Flatten())
    size = trunk(torch.zeros(1, *shape)).shape[1]
    if not width:
        return nn.Sequential(OrderedDict(trunk=trunk, out=nn.Linear(size, 10)))
    parts = OrderedDict(trunk=trunk, hidden=nn.Linear(size, width), relu=nn.ReLU(), out=nn.Linear(width, 10))
    return nn.Sequential(parts)


def train(model: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor, steps: int) -> None:
    """Train on the whole set in every step."""
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(functional.cross_entropy(model(x), y))
        optimiser.step()


def observe(model: nn.Sequential, evidence: str, data: Dataset) -> AttackerView:
    """Train as the evidence needs, and return what the attacker holds."""
    x, y = data.to_model(data.train.inputs), data.train.labels.long()
    held: dict[str, Any] = {}
    if evidence == "gradient-after-200":
        train(model, torch.optim.Adam(model.parameters(), 1e-3), x, y, 200)
    elif evidence.startswith("adamw"):
        optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
        train(model, optimiser, x, y, int(evidence.removeprefix("adamw-")))
        held["optimiser_state"] = optimiser.state_dict()
    elif evidence.startswith("head"):
        model.eval()
        held["initial"] = weights_of(model)
        head, features = nn.Sequential(model.hidden, model.relu, model.out), model.trunk(x).detach()
        train(head, torch.optim.SGD(head.parameters(), 0.05), features, y, int(evidence.removeprefix("head-")))
    model.eval()
    if evidence.startswith("gradient"):
        gradient = torch.autograd.grad(functional.cross_entropy(model(x), y), list(model.parameters()))
        held["gradient"] = dict(zip((name for name, _ in model.named_parameters()), gradient, strict=True))
    shape, final = data.input_shape, weights_of(model)
    return AttackerView(model=model, final=final, input_shape=shape, bounds=data.bounds, offset=data.offset, **held)


def one_of_each_class(data: Dataset, classes: int) -> tuple[Dataset, Tensor]:
    """Return the data with one training image of each of the first classes, and a mask of the other images."""
    labels = data.train.labels.tolist()
    chosen = [labels.index(label) for label in range(classes)]
    others = torch.ones(len(labels), dtype=torch.bool)
    others[chosen] = False
    few = replace(data.train, inputs=data.train.inputs[chosen], labels=data.train.labels[chosen])
    return replace(data, train=few), others


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all weights."""
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def measure(
    view: AttackerView, data: Dataset, seed: int, attack: Attack | None = None, layer: str = "hidden"
) -> dict[str, Any]:
    """Attack a view and compare with the training images."""
    started = time.perf_counter()
    try:
        found = (attack or GateCertificate()).run(view, seed=seed)
    except exhume.ExhumeError as error:
        return {"refused": str(error), "seconds": round(time.perf_counter() - started, 1)}
    row: dict[str, Any] = {
        "rank": found.diagnostics["training_size_estimate"],
        "rows": len(found),
        "certified_features": found.diagnostics.get("certified_features", 0),
        "preimages": dict(Counter(found.diagnostics.get("preimages", []))),
        "doubts": dict(Counter(found.diagnostics.get("doubts", []))),
        "seconds": round(found.seconds, 1),
    }
    if tuple(found.inputs.shape[1:]) != data.input_shape:
        features = LowerLayers(view.module(view.final), layer)(data.to_model(data.train.inputs))
        distances = torch.cdist(found.inputs, features) / features.norm(dim=1)
        nearest = distances.amin(dim=0) if len(found) else torch.full((len(features),), torch.inf)
        return row | {"features_within_1_percent": int((nearest < 0.01).sum()), "exact": 0, "certified": 0}
    differences = (found.inputs[:, None] - data.train.inputs[None]).flatten(2)
    errors = differences.abs().amax(dim=2)
    return row | {
        "certified": int(found.certified.sum()),
        "exact": int((errors.amin(dim=0) < EXACT).sum()),
        "good": int((differences.square().mean(dim=2).amin(dim=0) < GOOD).sum()),
        "false": int((errors.amin(dim=1)[found.certified] >= EXACT).sum()),
    }


def measure_inversion(view: AttackerView, data: Dataset, seed: int) -> dict[str, Any]:
    """Invert the true features of the training images."""
    single, double = (LowerLayers(view.module(view.final).to(kind), "hidden") for kind in (torch.float, torch.double))
    images = data.to_model(data.train.inputs)
    low, high = (end.float().reshape(data.input_shape) for end in view.model_box() or ())
    started = time.perf_counter()
    found = invert(
        lambda inputs: (double if inputs.dtype == torch.float64 else single)(inputs),
        single(images).detach(),
        InputBox(low, high),
        RunContext.start(seed=seed),
    )
    errors = (found.inputs - images).flatten(1).abs().amax(dim=1)
    is_determined = torch.tensor([outcome == "determined" for outcome in found.outcomes])
    return {
        "preimages": dict(Counter(map(str, found.outcomes))),
        "exact": int((errors < EXACT).sum()),
        "false": int((errors[is_determined] >= EXACT).sum()),
        "seconds": round(time.perf_counter() - started, 1),
    }


def measure_separation(view: AttackerView, data: Dataset, _: int) -> dict[str, Any]:
    """Separate features by the units that nearly all images switch alike, without a search for rows."""
    started = time.perf_counter()
    subspace = clues_of(view).require_gate_subspace()
    layer = subspace.layer
    problem = pose_problem(subspace, (backward_signals(view, layer.evidence.after, layer),))
    found = separate(view, subspace, problem)
    seconds = round(time.perf_counter() - started, 1)
    features = LowerLayers(view.module(view.final), "hidden")(data.to_model(data.train.inputs))
    distances = torch.cdist(found, features) / features.norm(dim=1)
    near = int((distances.amin(dim=0) < 0.01).sum()) if len(found) else 0
    return {"separated": len(found), "features_within_1_percent": near, "seconds": seconds}


def measure_visibility(view: AttackerView, data: Dataset, _: int) -> dict[str, Any]:
    """Measure how much of the difference of two images' features small changes of one of the images leave unexplained.

    Shares of norms, for the first three images and all others: beside the Jacobian alone (least, median, largest), and
    beside the Jacobian and all other features of the batch (least).
    """
    trunk, images = trunk_of(view, "hidden", view.final), data.to_model(data.train.inputs).double()
    footprints, features = find_footprints(trunk, data.input_shape, images), trunk(images).detach()
    alone, together = [], []
    for image in range(3):
        shifted = images[image] + 1e-5 * torch.randn(images[image].shape, generator=torch.Generator().manual_seed(0))
        tangent = torch.linalg.qr(torch.from_numpy(jacobian(trunk, shifted, footprints).toarray())).Q
        differences = (features - features[image])[torch.arange(len(images)) != image]
        outside = differences - (differences @ tangent) @ tangent.T
        alone.append(outside.norm(dim=1) / differences.norm(dim=1))
        for other in range(len(outside)):
            rest = torch.linalg.qr(torch.cat([outside[:other], outside[other + 1 :]]).T).Q
            left = outside[other] - rest @ (rest.T @ outside[other])
            together.append(left.norm() / differences[other].norm())
    shares = torch.cat(alone)
    found = (shares.min(), shares.median(), shares.max(), torch.stack(together).min())
    names = ("least", "median", "largest", "least_beside_all_features")
    return {name: round(float(value), 3) for name, value in zip(names, found, strict=True)}


def measure_case(network: str, evidence: str, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Build a network, train it as the evidence needs, attack it, and return the row."""
    if evidence.startswith("last-layer"):
        model = build(network, data.input_shape, 0, options.seed)
        few, others = one_of_each_class(data, 9)
        if evidence.endswith("trained"):
            images, labels = data.to_model(data.train.inputs)[others], data.train.labels.long()[others]
            train(model, torch.optim.Adam(model.parameters(), 1e-3), images, labels, 200)
        view = observe(model, "gradient", few)
        return {"size": 9} | measure(view, few, options.seed, LastLayer(), "out")
    view = observe(build(network, data.input_shape, options.width, options.seed), evidence, data)
    measured = measure_separation if options.separation else measure
    measured = measure_visibility if options.visibility else measured
    result = (measure_inversion if options.features_known else measured)(view, data, options.seed)
    return {"size": options.size} | result


def main() -> None:
    """Measure every network with every kind of evidence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="mnist")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--evidence", default=",".join(EVIDENCE))
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--features-known", action="store_true")
    parser.add_argument("--separation", action="store_true")
    parser.add_argument("--visibility", action="store_true")
    options = parser.parse_args()
    data = exhume.load(options.source, size=options.size, seed=options.seed, centre=False, data_dir=options.data_dir)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for network in options.networks.split(","):
        for evidence in options.evidence.split(","):
            rows.append({"network": network, "evidence": evidence} | measure_case(network, evidence, data, options))
            print(json.dumps(rows[-1]), flush=True)
            about = {"torch": torch.__version__, "machine": platform.machine(), "rows": rows}
            (options.out / "deep.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
