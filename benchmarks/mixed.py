"""Attack mixed small networks: which images come out exactly, by evidence, depth, width, learning rate and data set.

Every victim is drawn from its number: 6 to 20 images in [0, 1], 128 to 400 units per layer, one to three hidden layers,
PyTorch's default initial weights, SGD. Half of them are weight changes of a training, half are gradients at its start
or later. Prints one row per victim and a table, counts exceptions, and writes ``mixed.json``.

    PYTHONPATH=src python benchmarks/mixed.py --data-dir DIR --out DIR [--victims 1000] [--at-once 15] [--seconds 5]
"""

import argparse
import functools
import random
from pathlib import Path
from typing import Any

import small_victims
from small_victims import SOURCES, attack, build_network, draw_images, run_cases, train_network

VICTIMS = 1000
EVIDENCE = ("training", "gradient")
STEPS = {"training": (50, 150, 400), "gradient": (0, 20, 100)}
"""Numbers of steps: of the training, or before the gradient."""
RATES, MOMENTA = (0.003, 0.01, 0.03, 0.1), (0.0, 0.9)
WIDTH_GROUPS = (128, 200, 300, 401)
"""Numbers of units at which groups of widths begin; the last one ends the last group."""


def draw_victim(number: int, sources: list[str]) -> dict[str, Any]:
    """Draw everything about a victim from its number."""
    chance = random.Random(f"mixed {number}")
    evidence = EVIDENCE[number % 2]
    return {
        "number": number,
        "evidence": evidence,
        "source": chance.choice(sources),
        "size": chance.randint(6, 20),
        "width": chance.randint(WIDTH_GROUPS[0], WIDTH_GROUPS[-1] - 1),
        "depth": chance.randint(1, 3),
        "rate": chance.choice(RATES),
        "momentum": chance.choice(MOMENTA),
        "steps": chance.choice(STEPS[evidence]),
    }


def measure(*, data_dir: str | None, seconds: float | None, **victim: Any) -> dict[str, Any]:
    """Train one victim and attack it."""
    number = victim["number"]
    images, labels = draw_images(victim["source"], victim["size"], number, data_dir)
    flat = images.flatten(1)
    model = build_network(flat.shape[1], (victim["width"],) * victim["depth"], 10, number)
    before = model[0](flat) > 0
    training = {name: victim[name] for name in ("evidence", "rate", "momentum", "steps")}
    held = train_network(model, labels, lambda _: flat, **training)
    flipped = float(((model[0](flat) > 0) != before).double().mean())
    row = attack(held.view(), held.seen, seed=number, seconds=seconds)
    return row | {"images": len(held.seen), "flipped": round(flipped, 3)}


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums over all victims, and over those that have something in common."""
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for row in rows:
        case = row["case"]
        begin = max(group for group in WIDTH_GROUPS if group <= case["width"])
        for name in (
            case["evidence"],
            f"{case['evidence']}, {case['source']}",
            f"{case['evidence']}, {case['steps']} steps",
            f"{case['evidence']}, depth {case['depth']}",
            f"{case['evidence']}, {begin} units or more",
            f"{case['evidence']}, rate {case['rate']}, momentum {case['momentum']}",
        ):
            groups.setdefault(name, []).append(row)
    return [_sum_up(name, group) for name, group in sorted(groups.items())]


def _sum_up(name: str, group: list[dict[str, Any]]) -> dict[str, Any]:
    images = sum(row["images"] for row in group)
    exact = sum(row["exact"] for row in group)
    return {
        "victims": name,
        "number": len(group),
        "images": images,
        "exact": exact,
        "share": round(exact / images, 3),
        "certified": sum(row["certified"] for row in group),
        "false": sum(row["false"] for row in group),
        "nothing exact": sum(row["exact"] == 0 for row in group),
        "refused": sum("refused" in row for row in group),
        "stopped by time": sum(row.get("is_cut", False) for row in group),
        "exceptions": sum("exception" in row for row in group),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--victims", type=int, default=VICTIMS)
    parser.add_argument("--sources", default=",".join(SOURCES), help="Data sets, or files such as faces.npz.")
    parser.add_argument("--seconds", type=float, help="Time limit per victim.")
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    parser.add_argument("--resume", action="store_true", help="Keep the rows of an earlier run in the same folder.")
    options = parser.parse_args(arguments)
    sources = small_victims.readable_sources(options.sources.split(","), options.data_dir)
    rows = run_cases(
        functools.partial(measure, data_dir=options.data_dir, seconds=options.seconds),
        [draw_victim(number, sources) for number in range(options.victims)],
        at_once=options.at_once,
        file=options.out / "mixed.jsonl",
        resume=options.resume,
    )
    small_victims.write_results(options.out / "mixed.json", options.seconds, summarise(rows), rows)


if __name__ == "__main__":
    main()
