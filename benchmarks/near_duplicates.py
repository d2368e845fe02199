"""Attack networks that were trained on pairs of near-duplicates, over the difference within a pair.

20 images and 20 copies of them with the same labels, 1024 units, one hidden layer, PyTorch's default initial weights,
a cross-entropy of two classes, full-batch steps. A copy is its image plus noise of standard deviation ε, or moved by
the fraction ε towards an image that is not trained on. An image is *exact* if no pixel of its best candidate is off by
0.02, and *told apart* if in addition that candidate is at most half as far from it as its copy is. Prints one row per
network and the curve over ε, and writes ``near_duplicates.json``.

    PYTHONPATH=src python benchmarks/near_duplicates.py --data-dir DIR --out DIR [--seeds 5] [--at-once 16]
"""

import argparse
import functools
import itertools
from pathlib import Path
from typing import Any

import small_victims
import torch
from small_victims import EXACT, Held, attack, build_network, draw_images, run_cases, train_network
from torch import Tensor

PAIRS, WIDTH, STEPS, RATE = 20, 1024, 300, 0.01
EPSILONS = (0.3, 0.1, 0.05, 0.02, 0.01, 0.003)
WAYS = ("noise", "part")


def make_pairs(
    source: str, way: str, epsilon: float, seed: int, data_dir: str | None, pairs: int
) -> tuple[Tensor, Tensor]:
    """Return images followed by their copies, flat, and their labels."""
    images, labels = draw_images(source, 2 * pairs, seed, data_dir)
    flat, others = images.flatten(1).split(pairs)
    noise = torch.randn(flat.shape, generator=torch.Generator().manual_seed(seed))
    copies = flat + epsilon * (noise if way == "noise" else others - flat)
    return torch.cat([flat, copies.clamp(0, 1)]), labels[:pairs].repeat(2) % 2


def train_on_pairs(inputs: Tensor, labels: Tensor, seed: int, width: int = WIDTH) -> Held:
    model = build_network(inputs.shape[1], (width,), 2, seed)
    training = {"evidence": "training", "rate": RATE, "momentum": 0.9, "steps": STEPS}
    return train_network(model, labels, lambda _: inputs, **training)


def measure(
    source: str,
    way: str,
    epsilon: float,
    seed: int,
    *,
    data_dir: str | None,
    seconds: float | None,
    pairs: int = PAIRS,
    width: int = WIDTH,
) -> dict[str, Any]:
    """Train one network on pairs and attack it."""
    inputs, labels = make_pairs(source, way, epsilon, seed, data_dir, pairs)
    held = train_on_pairs(inputs, labels, seed, width)
    row = attack(held.view(), inputs, seed=seed, seconds=seconds)
    distance = (inputs[:pairs] - inputs[pairs:]).abs().amax(dim=1).repeat(2)
    nearest = torch.tensor(row["nearest"])
    apart = int((nearest < torch.minimum(distance / 2, torch.tensor(EXACT))).sum())
    return {"images": len(inputs), "told_apart": apart} | row


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the curve over the difference: means per network."""
    names = ("exact", "told_apart", "certified", "false", "seconds")
    summary = []
    for source, way, epsilon in dict.fromkeys(
        (row["case"]["source"], row["case"]["way"], row["case"]["epsilon"]) for row in rows
    ):
        chosen = {"source": source, "way": way, "epsilon": epsilon}
        group = [row for row in rows if row["case"].items() >= chosen.items()]
        means = {name: round(sum(row[name] for row in group) / len(group), 1) for name in names}
        summary.append(chosen | {"networks": len(group), "images": group[0]["images"]} | means)
    return sorted(summary, key=lambda line: (line["source"], line["way"], -line["epsilon"]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--sources", default="mnist,faces", help="Data sets, or files such as faces.npz.")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="time limit per network")
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    parser.add_argument("--resume", action="store_true", help="Keep the rows of an earlier run in the same folder.")
    options = parser.parse_args(arguments)
    readable = small_victims.readable_sources(options.sources.split(","), options.data_dir)
    epsilons = [float(epsilon) for epsilon in options.epsilons.split(",")]
    every = itertools.product(range(options.seeds), readable, options.ways.split(","), epsilons)
    cases = [{"source": source, "way": way, "epsilon": epsilon, "seed": seed} for seed, source, way, epsilon in every]
    limits = {"data_dir": options.data_dir, "seconds": options.seconds}
    rows = run_cases(
        functools.partial(measure, **limits),
        cases,
        at_once=options.at_once,
        file=options.out / "near_duplicates.jsonl",
        resume=options.resume,
    )
    small_victims.write_results(options.out / "near_duplicates.json", options.seconds, summarise(rows), rows)


if __name__ == "__main__":
    main()
