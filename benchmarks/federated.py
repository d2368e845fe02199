"""What protections of a federated update save: clipping, noise at several ε, rounding, and sums over many clients.

A client sends one gradient of its private images (FedSGD), or the change of its weights after a few local epochs
(FedAvg), and protects it; the server attacks what arrives, once for exact images (``GateCertificate``) and once for
recognisable ones (``WeightDifference``, which needs no visible rank). Privacy budgets are those of one example for a
gradient and of one client for a round. Prints one row per protection, draws ``federated.png`` and writes
``federated.json``.

    PYTHONPATH=src python benchmarks/federated.py --out DIR [--source mnist --data-dir DIR] [--size 8]
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from scipy import optimize, stats
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import exhume
from exhume.attacks import GateCertificate, WeightDifference
from exhume.core.errors import ExhumeError
from exhume.records import Split

EXACT = 0.02
"""Largest error of any pixel that still counts as exact."""
DELTA = 1e-5
EPSILONS = (1e6, 1e5, 1e4, 1e3, 100.0, 8.0)
"""Privacy budgets of one update; 8 is common in practice, and the large ones guarantee nothing worth having."""
LOCAL_EPOCHS, LOCAL_BATCH, LOCAL_RATE = 5, 4, 0.05
"""What a client does in a round."""
Update = dict[str, Tensor]
Parts = dict[str, Tensor]
"""What an update is the sum of, stacked: the gradients of examples, or the changes of clients."""


def noise_for(epsilon: float, delta: float = DELTA) -> float:
    """Return the noise multiplier of the Gaussian mechanism for one release (Balle and Wang 2018, theorem 8)."""

    def excess(log_std: float) -> float:
        std = math.exp(log_std)
        below = stats.norm.cdf(0.5 / std - epsilon * std)
        above = stats.norm.logcdf(-0.5 / std - epsilon * std) + epsilon
        return float(below - math.exp(min(above, 0.0)) - delta)

    return math.exp(optimize.brentq(excess, -12.0, 6.0))


def network(inputs: int, outputs: int, width: int = 512) -> nn.Module:
    """Return the client's network."""
    layers = (nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
    return nn.Sequential(nn.Flatten(), *layers)


def per_example(model: nn.Module, inputs: Tensor, labels: Tensor) -> Parts:
    """Return the gradient of every example, stacked."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(weights: Update, one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, weights, (one[None],)), label[None])

    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, inputs, labels)


def per_client(model: nn.Module, inputs: Tensor, labels: Tensor, size: int) -> Parts:
    """Return the change of the weights by each client's local training on ``size`` examples, stacked."""
    sent = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    changes = []
    for own, targets in zip(inputs.split(size), labels.split(size), strict=True):
        model.load_state_dict(sent)
        rule = torch.optim.SGD(model.parameters(), lr=LOCAL_RATE)
        for _ in range(LOCAL_EPOCHS):
            for chosen in torch.randperm(len(own)).split(LOCAL_BATCH):
                rule.zero_grad()
                functional.cross_entropy(model(own[chosen]), targets[chosen]).backward()
                rule.step()
        changes.append({name: weight.detach() - sent[name] for name, weight in model.state_dict().items()})
    model.load_state_dict(sent)
    return {name: torch.stack([change[name] for change in changes]) for name in sent}


def norms_of(parts: Parts) -> Tensor:
    """Return the norm of each part over all parameters."""
    return torch.stack([part.flatten(1).square().sum(dim=1) for part in parts.values()]).sum(dim=0).sqrt()


def clipped_sum(parts: Parts, norm: float) -> Update:
    """Return the sum of parts after each was shortened to at most ``norm``."""
    shares = (norm / norms_of(parts)).clamp(max=1.0)
    return {name: torch.tensordot(shares, part, dims=1) for name, part in parts.items()}


def make_protections(clip: float, clients: tuple[int, ...]) -> dict[str, tuple[int, Callable[[Parts], Update]]]:
    """Return for each protection how many clients are in the update, and what is done to its parts."""
    generator = torch.Generator().manual_seed(0)

    def with_noise(epsilon: float) -> Callable[[Parts], Update]:
        std = clip * noise_for(epsilon)
        return lambda parts: {
            name: part + std * torch.randn(part.shape, generator=generator)
            for name, part in clipped_sum(parts, clip).items()
        }

    def rounded(dtype: torch.dtype) -> Callable[[Parts], Update]:
        return lambda parts: {name: part.mean(dim=0).to(dtype).float() for name, part in parts.items()}

    none: Callable[[Parts], Update] = rounded(torch.float32)
    return {
        "none": (1, none),
        "clipped": (1, lambda parts: clipped_sum(parts, clip)),
        **{f"clipped, noise for ε={epsilon:g}": (1, with_noise(epsilon)) for epsilon in EPSILONS},
        "float16": (1, rounded(torch.float16)),
        "bfloat16": (1, rounded(torch.bfloat16)),
        **{f"sum over {count} clients": (count, none) for count in clients},
    }


def attack(view: exhume.AttackerView, data: exhume.Dataset, steps: int, seconds: float) -> dict[str, Any]:
    """Attack an update twice; count what is recovered of the images in it, and of as many held-out images."""
    row: dict[str, Any] = {"rank": None, "exact": 0, "certified": 0, "false": 0}
    try:
        found = GateCertificate().run(view, seed=0, device="cpu", seconds=seconds, keep_partial=True)
        errors = (found.inputs.flatten(1)[:, None] - data.train.inputs.flatten(1)[None]).abs().amax(dim=2)
        row = {
            "rank": found.diagnostics["training_size_estimate"],
            "exact": int((errors < EXACT).any(dim=0).sum()),
            "certified": int(found.certified.sum()),
            "false": int((found.certified & (errors.min(dim=1).values >= EXACT)).sum()),
            "seconds": round(found.seconds, 1),
        }
    except ExhumeError as reason:
        row["note"] = str(reason)
    count = 2 * len(data.train.inputs)
    rough = WeightDifference(steps=steps, candidates=count).run(view, seed=0, device="cpu")
    scores = exhume.evaluate(rough, data)
    assert scores.train is not None
    assert scores.holdout is not None
    return row | {"good": scores.train.good, "good_held_out": scores.holdout.good}


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of images recovered and certified for each protection, a gradient beside a round."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["protection"] for row in rows))
    messages = list(dict.fromkeys(row["message"] for row in rows))
    bars = (("good", "#e8b36b", 0.8), ("exact", "#7fb2d9", 0.55), ("certified", "#1f5f99", 0.25))
    words = {"good": "recognisable", "exact": "exact", "certified": "certified"}
    figure = Figure(figsize=(1.8 + 3.6 * len(messages), 0.3 * len(names) + 1.2), layout="constrained")
    panels = figure.subplots(1, len(messages), sharey=True, squeeze=False)[0]
    for axes, message in zip(panels, messages, strict=True):
        chosen = [row for row in rows if row["message"] == message]
        places = [names.index(row["protection"]) for row in chosen]
        for key, colour, height in bars:
            shares = [max(row[key], row["exact"]) / row["examples"] if key == "good" else row[key] / row["examples"]
                      for row in chosen]  # fmt: skip
            axes.barh(places, shares, height, color=colour, label=words[key])
        axes.set_title(message, fontsize=9)
        axes.set(xlim=(0, 1), xlabel="share of the images")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    """Measure every protection of a gradient and of a round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="digits")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--size", type=int, default=6, help="images per client")
    parser.add_argument("--width", type=int, default=512, help="units per layer")
    parser.add_argument("--clients", default="2,4,8", help="numbers of clients in a sum")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of the search for exact images")
    parser.add_argument("--steps", type=int, default=300, help="steps of the search for recognisable images")
    parser.add_argument("--only", default="", help="beginning of the names of protections to measure")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    clients = tuple(map(int, options.clients.split(",")))
    count = options.size * max(clients)
    data = exhume.load(
        options.source, classes="all", size=count, centre=False, test=0, data_dir=options.data_dir
    )  # pixels in [0, 1]
    inputs, labels = data.train.inputs, data.train.labels
    torch.manual_seed(0)
    model = network(inputs[0].numel(), int(labels.max()) + 1, options.width)
    sent = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    public: dict[str, Any] = {"model": model, "input_shape": data.input_shape, "bounds": data.bounds}
    messages: dict[str, tuple[Parts, Callable[[Update], exhume.AttackerView]]] = {
        "one gradient": (
            per_example(model, inputs, labels),
            lambda update: exhume.AttackerView(final=sent, gradient=update, **public),
        ),
        f"a round of {LOCAL_EPOCHS} local epochs": (
            per_client(model, inputs, labels, options.size),
            lambda update: exhume.AttackerView(
                initial=sent, final={name: weight + update[name] for name, weight in sent.items()}, **public
            ),
        ),
    }
    rows, clips = [], {}
    for message, (parts, make_view) in messages.items():
        clip = clips[message] = float(norms_of(parts).median())  # the usual choice: half of the parts are shortened
        per_client_parts = len(norms_of(parts)) // max(clients)
        for name, (number, protect) in make_protections(clip, clients).items():
            if not name.startswith(options.only):
                continue
            update = protect({key: part[: number * per_client_parts] for key, part in parts.items()})
            images = slice(0, number * options.size)
            here = replace(data, **{
                which: Split(inputs=split.inputs[images], labels=split.labels[images])
                for which, split in (("train", data.train), ("holdout", data.holdout))
            })  # fmt: skip
            row = {"message": message, "protection": name, "examples": number * options.size}
            rows.append(row | attack(make_view(update), here, options.steps, options.seconds))
            print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
            summary = {"torch": torch.__version__, "source": options.source, "clip": clips, "rows": rows}
            (options.out / "federated.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw_figure(rows, options.out / "federated.png")


if __name__ == "__main__":
    main()
