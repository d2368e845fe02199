"""Attack networks whose gates move during training: exact images over the fraction of gates that flipped.

Victims as people train them: PyTorch's default initial weights, pixels in [0, 1], a ten-class cross-entropy, 400
full-batch steps of SGD with learning rates from 0.003 to 0.3 and momentum 0 or 0.9; 12 images, 256 units. Prints one
row per victim and a summary, and writes ``lively.json``.

    PYTHONPATH=src python benchmarks/lively.py --data-dir DIR --out DIR [--seeds 5] [--at-once 2]
"""

import argparse
import copy
import itertools
import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import nn
from torch.nn import functional

import exhume
from exhume.attacks import GateCertificate

SIZE, WIDTH, STEPS = 12, 256, 400
DATA = ("mnist", "cifar-10")
RATES, MOMENTA = (0.003, 0.01, 0.03, 0.1, 0.3), (0.0, 0.9)
GROUPS = ((0.0, 0.1), (0.1, 0.2), (0.2, 0.35), (0.35, 1.0))
"""Fractions of flipped gates by which victims are grouped."""
LARGEST_ERROR = 0.02
"""Largest error of any value of an exact image."""


def attack_one(source: str, rate: float, momentum: float, seed: int, data_dir: str) -> dict[str, Any]:
    """Train one victim in a plain loop, attack it, and compare with its images."""
    torch.set_num_threads(1)
    data = exhume.load(source, classes=None, size=SIZE, seed=seed, centre=False, test=0, data_dir=data_dir)
    inputs, labels = data.train.inputs.flatten(1), data.train.labels
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(inputs.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    initial = copy.deepcopy(model.state_dict())
    before = model[0](inputs) > 0
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    for _ in range(STEPS):
        loss = functional.cross_entropy(model(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    row = {"data": source, "rate": rate, "momentum": momentum, "seed": seed, "loss": loss.item()}
    if not math.isfinite(loss.item()):
        return row | {"diverged": True}
    view = exhume.AttackerView(
        model=model,
        initial=initial,
        final=copy.deepcopy(model.state_dict()),
        input_shape=(inputs.shape[1],),
        bounds=(0.0, 1.0),
    )
    found = GateCertificate().run(view, seed=seed, device="cpu")
    errors = (found.inputs.flatten(1)[:, None] - inputs[None]).abs().amax(dim=2)
    return row | {
        "flipped": float(((model[0](inputs) > 0) != before).double().mean()),
        "exact": int((errors < LARGEST_ERROR).any(dim=0).sum()) if len(found) else 0,
        "certified": int(found.certified.sum()),
        "false": int((found.certified & (errors.amin(dim=1) >= LARGEST_ERROR)).sum()) if len(found) else 0,
        "seconds": round(found.seconds, 1),
    }


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the share of exact images for each data set and each group of flipped gates."""
    summary = []
    for source, (low, high) in itertools.product(DATA, GROUPS):
        group = [row for row in rows if row["data"] == source and low <= row.get("flipped", -1.0) < high]
        if group:
            count = SIZE * len(group)
            sums = {name: sum(row[name] for row in group) for name in ("exact", "certified", "false")}
            summary.append({"data": source, "flipped": [low, high], "victims": len(group), "images": count} | sums)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.at_once, mp_context=get_context("spawn")) as pool:
        cases = list(itertools.product(DATA, RATES, MOMENTA, range(options.seeds), [options.data_dir]))
        for row in pool.map(attack_one, *zip(*cases, strict=True)):
            rows.append(row)
            print(row, flush=True)
            result = {"torch": torch.__version__, "summary": summarise(rows), "rows": rows}
            (options.out / "lively.json").write_text(json.dumps(result, indent=1) + "\n")
    for line in summarise(rows):
        print(line)


if __name__ == "__main__":
    main()
