"""Recover 8-bit images by their levels alone (``LevelLattice``), below activations that have no gates.

One network per activation, data set and kind of evidence, built and trained by a plain PyTorch loop: two hidden layers
of 512 units, PyTorch's default initial weights, ten classes. The evidence is the gradient before training, the weight
change of 300 steps of SGD with momentum, or AdamW's state after 300 steps. Prints one row per network and writes
``any_activation.json``.

    PYTHONPATH=src python benchmarks/any_activation.py --data-dir DIR --out DIR [--size 40] [--seeds 0,1]
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from gradients import EXACT, Batch, load_batch, loss_of, view_of
from torch import nn

import exhume
from exhume.attacks import LevelLattice

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky-relu": nn.LeakyReLU,
}
EVIDENCE = ("gradient", "training", "adamw")
WIDTH, STEPS = 512, 300


def attacked_view(batch: Batch, activation: str, evidence: str, seed: int) -> exhume.AttackerView:
    """Train a network and return what the attacker holds."""
    torch.manual_seed(seed)
    kind, values = ACTIVATIONS[activation], batch.inputs[0].numel()
    layers = (nn.Linear(values, WIDTH), kind(), nn.Linear(WIDTH, WIDTH), kind(), nn.Linear(WIDTH, 10))
    model = nn.Sequential(nn.Flatten(), *layers)
    if evidence == "gradient":
        loss_of(model, batch).backward()
        return view_of(model, batch, gradient={name: weight.grad for name, weight in model.named_parameters()})
    initial = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    rule: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if evidence == "training":
        rule = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        rule.zero_grad()
        loss_of(model, batch).backward()
        rule.step()
    if evidence == "training":
        return view_of(model, batch, initial=initial)
    return view_of(model, batch, optimiser_state=rule.state_dict())


def measure(source: str, size: int, activation: str, evidence: str, seed: int, data_dir: str | None) -> dict[str, Any]:
    """Attack one network."""
    batch = load_batch(source, size, seed, data_dir)
    found = LevelLattice().run(attacked_view(batch, activation, evidence, seed), seed=seed, device="cpu")
    errors = (found.inputs.flatten(1)[:, None] - batch.inputs.flatten(1).float()).abs().amax(dim=2)
    return {
        "data": source,
        "images": size,
        "activation": activation,
        "evidence": evidence,
        "seed": seed,
        "exact": int((errors < 1e-6).any(dim=0).sum()) if len(found) else 0,
        "certified": int(found.certified.sum()),
        "false": int((found.certified & (errors.amin(dim=1) >= EXACT)).sum()) if len(found) else 0,
        "seconds": round(found.seconds, 1),
        "message": found.message,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--data", default="mnist,cifar-10")
    parser.add_argument("--activations", default=",".join(ACTIVATIONS))
    parser.add_argument("--evidence", default=",".join(EVIDENCE))
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--seeds", default="0")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lists = (options.data, options.evidence, options.activations, options.seeds)
    rows = []
    for data, evidence, activation, seed in itertools.product(*(each.split(",") for each in lists)):
        rows.append(measure(data, options.size, activation, evidence, int(seed), options.data_dir))
        print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
        summary = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
        (options.out / "any_activation.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
