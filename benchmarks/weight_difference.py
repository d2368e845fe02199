"""Measure how many images the weight-difference attack recovers, and in how many seconds.

Trains victims with standard dynamics, attacks each, and prints one row per attack: the number of training images with a
matched squared error per pixel below 0.01 ("good") and 0.001 ("fine"), and of held-out images below 0.01 ("null",
which should be 0). Rows are written to ``weight_difference.json`` as they are measured.

    PYTHONPATH=src python benchmarks/weight_difference.py --data-dir DIR --out DIR [--cases mnist-100] [--sweep]
"""

import argparse
import itertools
import json
import os
import platform
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch

import exhume
from exhume.attacks import WeightDifference
from exhume.evaluation.distances import UnitScale, squared_distances
from exhume.evaluation.matching import match

GOOD, FINE = 0.01, 0.001


@dataclass(frozen=True)
class Case:
    """One victim, and the result of the released code of Loo et al. (2023) on such a victim: seconds, good, fine."""

    source: str
    size: int
    width: int
    classes: str = "odd-even"
    training: dict[str, Any] = field(default_factory=dict)
    reference: tuple[float, int, int] | None = None


CASES = {
    "mnist-20": Case("mnist", 20, 512),
    "mnist-50": Case("mnist", 50, 1024),
    "mnist-50-lazy": Case("mnist", 50, 1024, training={"linearised": True}),
    "mnist-50-ten": Case("mnist", 50, 1024, classes="all"),
    "mnist-100": Case("mnist", 100, 1024, reference=(48.9, 89, 13)),
    "mnist-200": Case("mnist", 200, 1024, reference=(59.1, 135, 10)),
    "cifar-200": Case("cifar-10", 200, 2048, classes="animal-vehicle", reference=(83.4, 148, 0)),
    "mnist-500": Case("mnist", 500, 4096, reference=(47.3, 251, 0)),
    "digits-20": Case("digits", 20, 256),
    "mnist-50-crowded": Case("mnist", 50, 256),
    "mnist-60-crowded": Case("mnist", 60, 512),
    "cifar-50-crowded": Case("cifar-10", 50, 256, classes="animal-vehicle"),
}
USUAL = "mnist-100,mnist-200,cifar-200"


def choose_variants(sweep: bool, cuda: bool) -> dict[str, WeightDifference]:
    """Return the attacks to compare; ``sweep`` adds the settings that defaults were chosen from."""
    chosen = {
        "default": WeightDifference(),
        "midway first": WeightDifference(midway=0.5),
        "never midway": WeightDifference(midway=0.0),
        "midpoint": WeightDifference(features="midpoint"),
        "middle and end": WeightDifference(features=(0.5, 1.0)),
    }
    if cuda:
        chosen |= {
            "tf32": WeightDifference(precision="tf32"),
            "3000 steps, tf32": WeightDifference(steps=3000, precision="tf32"),
            "10000 steps, tf32": WeightDifference(steps=10_000, precision="tf32"),
            "10000 steps": WeightDifference(steps=10_000),
            "published": WeightDifference.published(),
        }
    if sweep:
        quick: dict[str, Any] = {"steps": 3000}
        chosen |= {
            "3000": WeightDifference(**quick),
            "3000 midpoint": WeightDifference(features="midpoint", **quick),
            "3000 middle and end": WeightDifference(features=(0.5, 1.0), **quick),
            "3000 three points": WeightDifference(features=(0.0, 0.5, 1.0), **quick),
            "3000 balance 0": WeightDifference(balance=0.0, **quick),
            "3000 balance 1": WeightDifference(balance=1.0, **quick),
            "3000 β to 50": WeightDifference(sharpness=(10.0, 50.0), **quick),
            "3000 β to 200": WeightDifference(sharpness=(10.0, 200.0), **quick),
            "3000 β from 5": WeightDifference(sharpness=(5.0, 100.0), **quick),
            "3000 M = 2N": WeightDifference(oversampling=2.0, **quick),
            "3000 M = 4N": WeightDifference(oversampling=4.0, **quick),
            "3000 M = 6N": WeightDifference(oversampling=6.0, **quick),
            "3000 lr 0.02": WeightDifference(learning_rate=0.02, **quick),
            "3000 lr 0.1": WeightDifference(learning_rate=0.1, **quick),
            "3000 box 0.3": WeightDifference(box_weight=0.3, **quick),
            "3000 box 1": WeightDifference(box_weight=1.0, **quick),
            "10000 all pixels": WeightDifference(within_span=False, steps=10_000, learning_rate=0.02),
        }
    return chosen


def count_recovered(found: exhume.Reconstruction, data: exhume.Dataset) -> dict[str, int]:
    """Count recovered training images, and held-out images that look recovered."""
    scale, counts = UnitScale.of(data), {}
    for name, split in (("train", data.train), ("null", data.holdout)):
        distances = squared_distances(scale(found.inputs), scale(split.inputs)) / split.inputs[0].numel()
        pairs = match(distances)
        matched = distances[pairs[:, 0], pairs[:, 1]]
        counts |= {f"{name}_good": int((matched < GOOD).sum()), f"{name}_fine": int((matched < FINE).sum())}
    return {"good": counts["train_good"], "fine": counts["train_fine"], "null": counts["null_good"]}


def measure(
    name: str, case: Case, attacks: dict[str, WeightDifference], seed: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train one victim and run every attack on it."""
    data = exhume.load(case.source, classes=case.classes, size=case.size, test=0, seed=seed, data_dir=options.data_dir)
    started = time.perf_counter()
    victim = exhume.train(data, model=exhume.MLP(width=case.width), device=options.device, seed=seed, **case.training)
    trained = time.perf_counter() - started
    print(f"{name}: trained in {trained:.1f} s to a loss of {victim.result['loss']:.1e}", flush=True)
    rows = []
    for label, attack in attacks.items():
        row: dict[str, Any] = {
            "case": name,
            "seed": seed,
            "N": case.size,
            "W": case.width,
            "variant": label,
            "attack": repr(attack),
            "reference": case.reference,
            "training_seconds": trained,
            "training_loss": victim.result["loss"],
        }
        try:
            found = attack.run(victim.view(), seed=seed, device=options.device)
            row |= count_recovered(found, data) | {
                "seconds": found.seconds,
                "candidates": len(found),
                "unexplained": float(found.history[-1]) if found.history is not None else None,
                "milliseconds_a_step": 1e3 * found.seconds / found.diagnostics["steps"],
                "outcome": found.outcome.value,
            }
        except Exception as error:  # an attack that fails must not stop the others
            traceback.print_exc()
            row["error"] = f"{type(error).__name__}: {error}"
        rows.append(row)
        print_row(row)
    return rows


def print_row(row: dict[str, Any]) -> None:
    """Print the result of one attack."""
    if "error" in row:
        print(f"{row['case']:14} {row['variant']:20} {row['error']}", flush=True)
        return
    print(
        f"{row['case']:14} {row['variant']:20} M {row['candidates']:5} {row['seconds']:7.2f} s "
        f"{row['milliseconds_a_step']:7.2f} ms/step  good {row['good']:4} fine {row['fine']:4} null {row['null']:3} "
        f"of {row['N']:4}  unexplained {row['unexplained']:.2e}  (released code: {row['reference']})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out/benchmarks")))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cases", default=USUAL, help=f"comma-separated, from {', '.join(CASES)}")
    parser.add_argument("--variants", default=None, help="comma-separated; all by default")
    parser.add_argument("--sweep", action="store_true", help="try the settings that defaults were chosen from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, starting at --seed")
    options = parser.parse_args()
    cuda = torch.cuda.is_available() and options.device != "cpu"
    attacks = choose_variants(options.sweep, cuda)
    if options.variants is not None:
        attacks = {name: attacks[name] for name in options.variants.split(",")}
    machine = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    results: dict[str, Any] = {"machine": machine, "torch": torch.__version__, "rows": []}
    print(machine, torch.__version__, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, seed in itertools.product(options.cases.split(","), range(options.seed, options.seed + options.seeds)):
        try:
            results["rows"] += measure(name, CASES[name], attacks, seed, options)
        except Exception:  # a victim that cannot be trained must not stop the others
            traceback.print_exc()
        (options.out / "weight_difference.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
