"""Recover 8-bit images from final weights alone (``LevelLattice``), where weight decay removed the initial weights.

The networks are those of Buzaglo et al. (2023): d-W-W-10 with a small first layer, all ten classes, cross-entropy,
full batches. The attacker holds the final weights and nothing else. Counts exact images of the training set
and of as many held-out images. Prints one row per network and writes ``final_levels.json``.

    PYTHONPATH=src python benchmarks/final_levels.py --data-dir DIR --out DIR [--cells mnist-20,mnist-50] [--seeds 0,1]
"""

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch

import exhume
from exhume.attacks import LevelLattice
from exhume.core.errors import ExhumeError
from exhume.training.recipes import weight_decay_recipe

EXACT = 0.02
"""Largest error of any pixel that still counts as exact."""
CELLS = {f"{source}-{size}": (source, size) for source in ("mnist", "cifar-10") for size in (10, 20, 30, 50, 75, 100)}


def count_exact(images: torch.Tensor, found: torch.Tensor) -> int:
    """Return how many images some found one equals."""
    if len(found) == 0:
        return 0
    return int(sum(bool(((found - image).abs().amax(dim=1) < EXACT).any()) for image in images))


def measure(
    source: str, size: int, seed: int, decay: float, steps: int, width: int, precision: str, data_dir: str | None
) -> dict[str, Any]:
    """Train one network and attack its final weights."""
    data = exhume.load(source, classes="all", size=size, test=0, seed=seed, data_dir=data_dir)
    recipe = weight_decay_recipe(loss="ce", weight_decay=decay, width=width, steps=steps) | {"precision": precision}
    view = replace(exhume.train(data, device="cpu", seed=seed, **recipe).view(), initial=None)
    row = {"data": source, "images": size, "units": width, "weight decay": decay, "steps": steps, "seed": seed}
    row["precision"] = precision
    try:
        found = LevelLattice().run(view, seed=seed, device="cpu")
    except ExhumeError as reason:
        return row | {"exact": 0, "held-out": 0, "certified": 0, "false": 0, "seconds": 0.0, "message": str(reason)}
    inputs, train = found.inputs.flatten(1), data.train.inputs.flatten(1)
    return row | {
        "exact": count_exact(train, inputs),
        "held-out": count_exact(data.holdout.inputs.flatten(1), inputs),
        "certified": int(found.certified.sum()),
        "false": int(found.certified.sum()) - count_exact(inputs[found.certified], train),
        "seconds": round(found.seconds, 1),
        "message": found.message,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cells", default="mnist-20,mnist-50,cifar-10-20")
    parser.add_argument("--decays", default="0.003")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--precision", default="float32", help="Precision of the training: float32 or float64.")
    parser.add_argument("--seeds", default="0")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    lists = (options.cells.split(","), options.decays.split(","), options.seeds.split(","))
    for cell, decay, seed in itertools.product(*lists):
        settings = (float(decay), options.steps, options.width, options.precision, options.data_dir)
        rows.append(measure(*CELLS[cell], int(seed), *settings))
        print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
        summary = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
        (options.out / "final_levels.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
