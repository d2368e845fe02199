"""What protections of a federated update save: clipping, noise at several ε, rounding, and sums over many clients.

A client computes the gradient of a small network on its private images and protects it; the server attacks what
arrives. Prints one row per protection, draws ``federated.png`` and writes ``federated.json``.

    PYTHONPATH=src python benchmarks/federated.py --out DIR [--source mnist --data-dir DIR] [--size 16]
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from scipy import optimize, stats
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import exhume
from exhume.attacks import GateCertificate
from exhume.core.errors import ExhumeError

EXACT = 0.02
"""Largest error of any pixel that still counts as exact."""
DELTA = 1e-5
EPSILONS = (1e6, 1e5, 1e4, 1e3, 100.0, 8.0)
"""Privacy budgets of one update; 8 is common in practice, and the large ones guarantee nothing worth having."""
Update = dict[str, Tensor]


def noise_for(epsilon: float, delta: float = DELTA) -> float:
    """Return the noise multiplier of the Gaussian mechanism for one release (Balle and Wang 2018, theorem 8)."""

    def excess(log_std: float) -> float:
        std = math.exp(log_std)
        below = stats.norm.cdf(0.5 / std - epsilon * std)
        above = stats.norm.logcdf(-0.5 / std - epsilon * std) + epsilon
        return float(below - math.exp(min(above, 0.0)) - delta)

    return math.exp(optimize.brentq(excess, -12.0, 6.0))


def network(inputs: int, outputs: int) -> nn.Module:
    """Return the client's network."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, outputs)
    )


def per_example(model: nn.Module, inputs: Tensor, labels: Tensor) -> Update:
    """Return the gradient of every example, stacked."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(weights: Update, one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, weights, (one[None],)), label[None])

    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, inputs, labels)


def clipped_sum(each: Update, norm: float) -> Update:
    """Return the sum of gradients after each example's was shortened to at most ``norm``."""
    sizes = torch.stack([part.flatten(1).square().sum(dim=1) for part in each.values()]).sum(dim=0).sqrt()
    shares = (norm / sizes).clamp(max=1.0)
    return {name: torch.tensordot(shares, part, dims=1) for name, part in each.items()}


def make_protections(clip: float, clients: tuple[int, ...]) -> dict[str, tuple[int, Callable[[Update], Update]]]:
    """Return for each protection how many clients' examples are in the update, and what is done to their gradients."""
    generator = torch.Generator().manual_seed(0)

    def with_noise(epsilon: float) -> Callable[[Update], Update]:
        std = clip * noise_for(epsilon)
        return lambda each: {
            name: part + std * torch.randn(part.shape, generator=generator)
            for name, part in clipped_sum(each, clip).items()
        }

    def rounded(dtype: torch.dtype) -> Callable[[Update], Update]:
        return lambda each: {name: part.mean(dim=0).to(dtype).float() for name, part in each.items()}

    none: Callable[[Update], Update] = rounded(torch.float32)
    return {
        "none": (1, none),
        "clipped": (1, lambda each: clipped_sum(each, clip)),
        **{f"clipped, noise for ε={epsilon:g}": (1, with_noise(epsilon)) for epsilon in EPSILONS},
        "float16": (1, rounded(torch.float16)),
        "bfloat16": (1, rounded(torch.bfloat16)),
        **{f"sum over {count} clients": (count, none) for count in clients},
    }


def attack(model: nn.Module, update: Update, inputs: Tensor, shape: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """Attack an update and count what is recovered of all inputs in it."""
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    view = exhume.AttackerView(model=model, final=final, gradient=update, input_shape=shape, bounds=None)
    try:
        found = GateCertificate().run(view, seed=0, device="cpu", seconds=seconds)
    except ExhumeError as reason:
        return {"rank": None, "exact": 0, "certified": 0, "false": 0, "note": str(reason)}
    errors = (found.inputs.flatten(1)[:, None] - inputs.flatten(1)[None]).abs().amax(dim=2)
    return {
        "rank": found.diagnostics["training_size_estimate"],
        "exact": int((errors < EXACT).any(dim=0).sum()),
        "certified": int(found.certified.sum()),
        "false": int((found.certified & (errors.min(dim=1).values >= EXACT)).sum()),
        "seconds": round(found.seconds, 1),
    }


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of images recovered and certified for each protection."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.32 * len(rows) + 1.0), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    for key, colour, height in (("exact", "#7fb2d9", 0.7), ("certified", "#1f5f99", 0.35)):
        axes.barh(places, [row[key] / row["examples"] for row in rows], height, color=colour, label=key)
    for place, row in zip(places, rows, strict=True):
        if "note" in row:  # nothing is known of an attack that was stopped
            words = "no rank is visible" if "no visible rank" in row["note"] else "not finished in time"
            axes.text(0.01, place, words, va="center", fontsize=8, color="#666666")
    axes.set_yticks(places, [f"{row['protection']} ({row['examples']} images)" for row in rows])
    axes.set(xlim=(0, 1), xlabel="share of the images in the update")
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    """Measure every protection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="digits")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--size", type=int, default=12, help="images per client")
    parser.add_argument("--clients", default="2,4,8", help="numbers of clients in a sum")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit per attack")
    parser.add_argument("--only", default="", help="beginning of the names of protections to measure")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    clients = tuple(map(int, options.clients.split(",")))
    count = options.size * max(clients)
    data = exhume.load(options.source, classes="all", size=count, test=0, data_dir=options.data_dir)
    inputs, labels = data.to_model(data.train.inputs), data.train.labels
    torch.manual_seed(0)
    model = network(inputs[0].numel(), int(labels.max()) + 1)
    each = per_example(model, inputs, labels)
    sizes = torch.stack([part.flatten(1).square().sum(dim=1) for part in each.values()]).sum(dim=0).sqrt()
    clip = float(sizes.median())  # the usual choice: half of the examples are shortened
    rows = []
    for name, (number, protect) in make_protections(clip, clients).items():
        if not name.startswith(options.only):
            continue
        chosen = slice(0, number * options.size)
        update = protect({key: part[chosen] for key, part in each.items()})
        row = {"protection": name, "examples": number * options.size}
        rows.append(row | attack(model, update, inputs[chosen], data.input_shape, options.seconds))
        print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
    summary = {"torch": torch.__version__, "source": options.source, "clip": clip, "rows": rows}
    (options.out / "federated.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw_figure(rows, options.out / "federated.png")


if __name__ == "__main__":
    main()
