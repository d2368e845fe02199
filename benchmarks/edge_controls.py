"""False certificates of meeting edges: many small networks of different kinds, and edges that meet only by chance.

    python benchmarks/edge_controls.py --networks 120 --out FILE

Every network is drawn at random: source, number of images, width, depth, weight decay, loss. A certificate is false if
some pixel is further than 0.02 from every training image. The same network with shuffled offsets is the control: its
edges have the same directions, and no training made them meet, so every certificate there is false. ``--at-rest`` draws
only networks like those that most certificates come from: ten classes of digits or MNIST, weight decay, two layers.
"""

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch

from exhume.attacks.stationarity.edge_certificate import certify_meeting_points
from exhume.attacks.stationarity.edges import Edges
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.stationarity.meeting_points import InputRange, find_meeting_points
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.errors import ExhumeError
from exhume.core.run_context import RunContext
from exhume.optimise.box import Box
from exhume.records import AttackerView
from exhume.records.comparison import EXACT
from exhume.studies.tasks import draw
from exhume.training import train
from exhume.training.recipes import weight_decay_recipe

SOURCES = {"digits": 1, "mnist": 2, "cifar-10": 2}
"""Side of the square of pixels that are averaged into one, by source."""
TWO = {"digits": "odd-even", "mnist": "odd-even", "cifar-10": "animal-vehicle"}


def draw_setting(seed: int, at_rest: bool = False) -> dict[str, Any]:
    """Draw the kind of a network; ``at_rest``: one that certificates are to be expected of."""
    generator = torch.Generator().manual_seed(seed)

    def choose(*values: Any) -> Any:
        return values[int(torch.randint(len(values), (1,), generator=generator))]

    if at_rest:
        return {
            "seed": seed,
            "source": choose("digits", "mnist"),
            "classes": "all",
            "size": choose(10, 12, 15),
            "width": choose(200, 250, 300),
            "depth": 2,
            "weight_decay": choose(1e-3, 3e-3),
            "steps": choose(1500, 2000, 3000),
        }
    classes = choose("all", "all", "all", "two")
    return {
        "seed": seed,
        "source": choose("digits", "mnist", "cifar-10"),
        "classes": classes,
        "size": choose(10, 12, 15) if classes == "all" else choose(6, 8, 10),
        "width": choose(100, 150, 200, 300),
        "depth": choose(1, 2, 2, 2, 3),
        "weight_decay": choose(0.0, 3e-4, 1e-3, 1e-3, 3e-3),
        "steps": choose(1000, 2000, 3000),
    }


def measure(setting: dict[str, Any]) -> dict[str, Any]:
    """Train, attack, and count certificates of the network and of its control."""
    source, seed = setting["source"], setting["seed"]
    classes = "all" if setting["classes"] == "all" else TWO[source]
    data = draw(source, classes, size=setting["size"], held_out=20, seed=seed, shrink=SOURCES[source])
    recipe = weight_decay_recipe(
        loss="ce" if classes == "all" else "bce",
        weight_decay=setting["weight_decay"],
        width=setting["width"],
        depth=setting["depth"],
        steps=setting["steps"],
    )
    started = time.perf_counter()
    victim = train(data, device="cpu", seed=seed, **recipe)
    view = replace(victim.view(), initial=None)
    found = MaxMargin(trials=1, restarts=3, steps=200, prove=True).run(view, seed=seed, device="cpu")
    met = len(found.diagnostics["edges_met"])
    pixels, images = found.inputs[:met].flatten(1), data.train.inputs.flatten(1)
    nearest = torch.cdist(images.to(pixels), pixels, p=float("inf")) if met else torch.ones(len(images), 1)
    errors = nearest.amin(0)[:met]
    certified = found.certified[:met]
    bounds = torch.tensor([bound or torch.inf for bound in found.diagnostics["error_bounds"][:met]])
    judged = list(zip(found.diagnostics["doubts"], (errors >= EXACT).tolist(), strict=False))
    return setting | {
        "points": met,
        "exact": int((nearest.amin(1) < EXACT).sum()),
        "certified": int(certified.sum()),
        "false": int((certified & (errors >= EXACT)).sum()),
        "largest_certified_error": float(errors[certified].max()) if bool(certified.any()) else None,
        "largest_error_of_bound": float((errors / bounds)[certified].max()) if bool(certified.any()) else None,
        "wrong_points": int((errors >= EXACT).sum()),
        "control": certify_control(view, found.inputs, seed),
        "doubts_of_wrong_points": Counter(doubt for doubt, is_wrong in judged if is_wrong),
        "doubts_of_true_points": Counter(doubt for doubt, is_wrong in judged if not is_wrong),
        "seconds": time.perf_counter() - started,
    }


def certify_control(view: AttackerView, candidates: torch.Tensor, seed: int) -> int | None:
    """Return the number of certificates of the same edges with shuffled offsets; None where there are no edges."""
    span = clues_of(view).span
    if span is None:
        return None
    space = SearchSpace.spanned_by(span, torch.float64)
    edges = Edges.of(view, space)
    if edges is None:
        return None
    within = InputRange.of(Box.of(view, torch.float64), space)
    lengths = edges.weights[0].norm(dim=1).clamp(min=1e-300)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    shuffled = replace(edges, biases=((edges.biases[0] / lengths)[order] * lengths, *edges.biases[1:]))
    starts = space.project(view.to_model(candidates).flatten(1).double())
    shuffled = shuffled.with_slopes_at(starts)
    met = find_meeting_points(shuffled, within, starts, RunContext.start(seed=seed))
    return int(certify_meeting_points(shuffled, within, met, 1e-3, span).is_certified.sum())


def main() -> None:
    """Measure networks one after another and write each result at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--at-rest", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.first, arguments.first + arguments.networks):
        setting = draw_setting(seed, arguments.at_rest)
        try:
            rows.append(measure(setting))
        except ExhumeError as error:
            rows.append(setting | {"refused": str(error)})
        print(json.dumps(rows[-1]), flush=True)
        arguments.out.write_text(json.dumps({"rows": rows}, indent=1))
    measured = [row for row in rows if "refused" not in row]
    totals = {key: sum(row[key] for row in measured) for key in ("exact", "certified", "false", "wrong_points")}
    totals |= {"control": sum(row["control"] or 0 for row in measured), "networks": len(measured)}
    totals["controls"] = sum(row["control"] is not None for row in measured)
    arguments.out.write_text(json.dumps({"totals": totals, "rows": rows}, indent=1))
    print(totals)


if __name__ == "__main__":
    main()
