"""Attack one gradient, a federated round, or an optimiser's state, in the cells that others published and in our own.

Every cell is a network that a plain PyTorch loop builds and trains. The attacker holds the weights at which the
gradient was taken, never the initial weights, the labels or the batch size; a federated round has both ends instead.
Prints one row per victim and writes ``gradients.json``.

    PYTHONPATH=src python benchmarks/gradients.py --data-dir DIR --out DIR [--cells spear-20,lt-mnist-64] [--seeds 0,1]
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import nn
from torch.nn import functional

import exhume
from exhume.attacks import GateCertificate
from exhume.core.errors import ExhumeError

EXACT = 0.02
"""Largest error of any pixel that still counts as exact."""


@dataclass(frozen=True)
class Batch:
    """Inputs in [0, 1] with their labels, and the name of the source."""

    inputs: torch.Tensor
    labels: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])


def load_batch(source: str, size: int, seed: int, data_dir: str | None) -> Batch:
    classes = None if source == "faces" else "all"
    data = exhume.load(source, classes=classes, size=size, seed=seed, centre=False, test=0, data_dir=data_dir)
    return Batch(data.train.inputs, data.train.labels)


def dense(batch: Batch, widths: tuple[int, ...], seed: int, first_std: float | None = None) -> nn.Module:
    """Build a dense ReLU network with PyTorch's default start; ``first_std``: a normal first layer, as in Xu et al."""
    torch.manual_seed(seed)
    sizes = (batch.inputs[0].numel(), *widths)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    if first_std is not None:
        nn.init.normal_(layers[1].weight, std=first_std)
        nn.init.normal_(layers[1].bias, std=first_std)
    return nn.Sequential(*layers, nn.Linear(sizes[-1], int(batch.labels.max()) + 1))


def view_of(model: nn.Module, batch: Batch, **evidence: Any) -> exhume.AttackerView:
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return exhume.AttackerView(model=model, final=final, input_shape=batch.shape, bounds=(0.0, 1.0), **evidence)


def loss_of(model: nn.Module, batch: Batch, chosen: Any = slice(None)) -> torch.Tensor:
    inputs = batch.inputs[chosen].to(next(model.parameters()).dtype)
    return functional.cross_entropy(model(inputs), batch.labels[chosen])


def one_gradient(
    batch: Batch, seed: int, widths: tuple[int, ...], dtype: torch.dtype = torch.float32, first_std: float | None = None
) -> exhume.AttackerView:
    model = dense(batch, widths, seed, first_std).to(dtype)
    loss_of(model, batch).backward()
    return view_of(model, batch, gradient={name: weight.grad for name, weight in model.named_parameters()})


def several_gradients(batch: Batch, seed: int, count: int, width: int = 48, apart: int = 20) -> exhume.AttackerView:
    """Train a network with few units on the same batch, and hand out gradients that lie ``apart`` steps apart."""
    model = dense(batch, (width,), seed)
    rule, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(apart * (count - 1) + 1):
        rule.zero_grad()
        loss_of(model, batch).backward()
        if step % apart == 0:
            weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
            gradient = {name: weight.grad.clone() for name, weight in model.named_parameters()}
            seen.append(exhume.GradientAt(weights=weights, gradient=gradient))
        rule.step()
    model.load_state_dict(seen[0].weights)
    return view_of(model, batch, gradient=seen[0].gradient, more_gradients=tuple(seen[1:]))


def checkpoint(
    batch: Batch, seed: int, make: Callable[..., torch.optim.Optimizer], size: int, stop_loss: float, steps: int = 3000
) -> exhume.AttackerView:
    """Train until the loss of all examples is below ``stop_loss``, and hand out the optimiser's state."""
    model = dense(batch, (1024, 1024), seed)
    rule, step = make(model.parameters()), 0
    while step < steps:
        for chosen in torch.randperm(len(batch.inputs)).split(size):
            rule.zero_grad()
            loss_of(model, batch, chosen).backward()
            rule.step()
            step += 1
        with torch.no_grad():
            if loss_of(model, batch) <= stop_loss:
                break
    return view_of(model, batch, optimiser_state=rule.state_dict())


def federated_round(batch: Batch, seed: int, epochs: int = 5, size: int = 8, lr: float = 0.05) -> exhume.AttackerView:
    model = dense(batch, (1024, 1024), seed)
    initial = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    rule = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        for chosen in torch.randperm(len(batch.inputs)).split(size):
            rule.zero_grad()
            loss_of(model, batch, chosen).backward()
            rule.step()
    return view_of(model, batch, initial=initial)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


SIX_LAYERS = (200,) * 5
Victim = Callable[[Batch, int], exhume.AttackerView]


def make_cells() -> dict[str, tuple[str, int, Victim]]:
    """Return source, batch size and victim of every cell by name."""
    cells: dict[str, tuple[str, int, Victim]] = {}
    for size in (20, 25, 30, 40):  # SPEAR (Dimitrov et al. 2024)
        cells[f"spear-{size}"] = ("cifar-10", size, partial(one_gradient, widths=SIX_LAYERS))
    for name, dtype in (("", torch.float32), ("-float64", torch.float64)):  # LT-code peeling (2026)
        for source in ("cifar-10", "mnist"):
            for size in (64, 128):
                victim = partial(one_gradient, widths=(1000,), dtype=dtype, first_std=0.5)
                cells[f"lt-{source}-{size}{name}"] = (source, size, victim)
    for source in ("mnist", "cifar-10"):
        cells[f"default-{source}-64"] = (source, 64, partial(one_gradient, widths=(1000,)))
    for source in ("mnist", "cifar-10", "faces"):
        cells[f"adamw-{source}-40"] = (source, 40, partial(checkpoint, make=adamw, size=10, stop_loss=0.05))
    for source in ("mnist", "cifar-10"):
        cells[f"adamw-{source}-100"] = (source, 100, partial(checkpoint, make=adamw, size=20, stop_loss=0.05))
        cells[f"momentum-{source}-50"] = (source, 50, partial(checkpoint, make=momentum, size=10, stop_loss=0.05))
    adam = partial(torch.optim.Adam, lr=1e-3)
    cells["adam-early-cifar-10-100"] = ("cifar-10", 100, partial(checkpoint, make=adam, size=20, stop_loss=0.3))
    for source in ("mnist", "cifar-10"):
        cells[f"federated-{source}-32"] = (source, 32, federated_round)
    for count in (1, 2, 4):
        cells[f"rounds-{count}-digits-12"] = ("digits", 12, partial(several_gradients, count=count))
    return cells


def measure(
    name: str, seed: int, *, data_dir: str | None, seconds: float | None, device: str = "cpu", size: int | None = None
) -> dict[str, Any]:
    """Attack one victim of a cell; ``size`` replaces the batch size."""
    source, usual, victim = make_cells()[name]
    batch = load_batch(source, size or usual, seed, data_dir)
    view = victim(batch, seed)
    row: dict[str, Any] = {"cell": name, "seed": seed, "batch": len(batch.inputs)}
    started = time.perf_counter()
    try:
        found = GateCertificate().run(view, seed=seed, device=device, seconds=seconds, keep_partial=True)
    except ExhumeError as reason:
        spent = round(time.perf_counter() - started, 1)
        return row | {"rank": None, "exact": 0, "certified": 0, "false": 0, "seconds": spent, "note": str(reason)}
    errors = (found.inputs.flatten(1)[:, None] - batch.inputs.flatten(1)[None].float()).abs().amax(dim=2)
    nearest = errors.min(dim=1).values
    stopped = {"note": "stopped"} if seconds is not None and found.seconds >= seconds else {}
    return (
        row
        | stopped
        | {
            "rank": found.diagnostics["training_size_estimate"],
            "exact": int((errors < EXACT).any(dim=0).sum()),
            "certified": int(found.certified.sum()),
            "false": int((found.certified & (nearest >= EXACT)).sum()),
            "seconds": round(found.seconds, 1),
        }
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cells", default=",".join(make_cells()))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--seconds", type=float, help="time limit per victim")
    parser.add_argument("--size", type=int, help="batch size, in place of that of the cell")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for cell in options.cells.split(","):
        for seed in map(int, options.seeds.split(",")):
            limits = {"data_dir": options.data_dir, "seconds": options.seconds, "device": options.device}
            rows.append(measure(cell, seed, size=options.size, **limits))
            print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
            summary = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
            (options.out / "gradients.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
