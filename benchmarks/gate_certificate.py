"""Measure how many training inputs the certificate recovers exactly, and in how many seconds, over several seeds.

Trains victims with standard dynamics, attacks each from random starting points, and prints one row per victim:
certified, exact (largest error below 0.02), false (certified, with a larger error) and seconds. Rows are written to
``gate_certificate.json`` as they are measured.

    PYTHONPATH=src python benchmarks/gate_certificate.py --data-dir DIR --out DIR [--cases mnist-20] [--seeds 5]
"""

import argparse
import json
import platform
import time
from collections import Counter
from pathlib import Path

import numerical_only  # noqa: F401 # before exhume
import torch

import exhume
from exhume.attacks import Attack, GateCertificate, WeightDifference

CASES = {
    "mnist-20": ("mnist", "odd-even", 20, 512),
    "mnist-50": ("mnist", "odd-even", 50, 512),
    "mnist-60-crowded": ("mnist", "odd-even", 60, 256),
    "mnist-100": ("mnist", "odd-even", 100, 1024),
    "mnist-200": ("mnist", "odd-even", 200, 1024),
    "mnist-500": ("mnist", "odd-even", 500, 4096),
    "cifar-200": ("cifar-10", "animal-vehicle", 200, 2048),
    "faces-40": ("faces", None, 40, 1024),
}
USUAL = "mnist-20,mnist-50,faces-40"


def measure(
    attack: Attack, case: str, seed: int, device: str, data_dir: str | None, faces: str | None, seconds: float | None
) -> dict[str, object]:
    """Train one victim, attack it, and compare with the training inputs."""
    source, classes, size, width = CASES[case]
    if source == "faces" and faces is not None:
        source = faces
    data = exhume.load(source, classes=classes, size=size, seed=seed, data_dir=data_dir, test=0)
    victim = exhume.train(data, model=exhume.MLP(width=width, depth=2), seed=seed, device=device)
    found = attack.run(victim.view(), seed=seed, device=device, seconds=seconds, keep_partial=True)
    errors = torch.stack([(found.inputs - x).flatten(1).abs().amax(dim=1) for x in data.train.inputs], dim=1)
    nearest = errors.min(dim=1).values if len(found) else torch.zeros(0)
    return {
        "case": case,
        "N": size,
        "W": width,
        "seed": seed,
        "rows": len(found),
        "doubts": dict(Counter(doubt for doubt in found.diagnostics.get("doubts", []) if doubt)),
        "certified": int(found.certified.sum()),
        "exact": int((errors < 0.02).any(dim=0).sum()) if len(found) else 0,
        "false": int((found.certified & (nearest >= 0.02)).sum()),
        "largest_error": float(nearest.max()) if len(found) else None,
        "seconds": round(found.seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cases", default=USUAL)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--warm",
        type=int,
        default=0,
        help="steps of the attack that provides starting points; 0: none",
    )
    parser.add_argument("--faces", help="faces as a file, if they cannot be downloaded")
    parser.add_argument("--seconds", type=float, help="time limit per attack; what was found by then counts")
    parser.add_argument("--patience", type=int, default=GateCertificate.patience)
    options = parser.parse_args()
    warm = WeightDifference(steps=options.warm, midway=0.0) if options.warm else None
    attack = GateCertificate(warm_start=warm, patience=options.patience)
    options.out.mkdir(parents=True, exist_ok=True)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() and options.device != "cpu" else "CPU"
    rows: list[dict[str, object]] = []
    columns = ("case", "N", "W", "seed", "rows", "certified", "exact", "false", "largest error", "seconds")
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for case in options.cases.split(","):
        for seed in range(options.seeds):
            row = measure(attack, case, seed, options.device, options.data_dir, options.faces, options.seconds)
            rows.append(row)
            print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)
            summary = {"torch": torch.__version__, "python": platform.python_version(), "device": where, "rows": rows}
            (options.out / "gate_certificate.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"\n{where}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}")


if __name__ == "__main__":
    main()
