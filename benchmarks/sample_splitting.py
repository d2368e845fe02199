"""Measure what sample splitting adds: searches that start with few candidates and split them, against plain ones.

Every variant of a case attacks the same networks with the same number of steps and ends with the same number of
candidates. ``WeightDifference`` on MNIST odd-even: *good* images have a matched squared error per pixel below 0.01,
*fine* ones below 0.001, and *null* counts held-out images that would be good. ``MaxMargin`` on MNIST at 14×14 pixels,
ten classes, weight decay 1e-3: images recovered at 1 % FPR, and *null* with training and held-out images exchanged.
"At random" splits along random directions instead of those of the lowest curvature.

Rows are added to ``sample_splitting.json``; what is there already is not measured again. Images are read from
``EXHUME_DATA``.

    PYTHONPATH=src python benchmarks/sample_splitting.py --out DIR [--cases crowded,max-margin] [--seeds 3]
"""

import argparse
import itertools
import json
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import Tensor
from weight_difference import count_recovered

import exhume
from exhume.attacks import MaxMargin, WeightDifference
from exhume.studies.metrics import FPR, count_exact, relative_ranks
from exhume.studies.tasks import draw
from exhume.training.recipes import weight_decay_recipe


@dataclass(frozen=True)
class Case:
    """A network and the settings that all its searches share."""

    size: int
    width: int
    settings: dict[str, Any] = field(default_factory=dict)
    finals: tuple[float, ...] = (1.0, 2.0, 3.0)
    """Candidates per training image at the end."""


CASES = {
    "crowded": Case(40, 256),
    "roomy": Case(40, 512),
    "all-pixels": Case(40, 400, {"within_span": False}),
    "max-margin": Case(20, 200, finals=(1.0, 2.0)),
}
VARIANTS = {"plain": (0, False), "one split": (1, False), "two splits": (2, False), "one split at random": (1, True)}
"""Number of splits, and whether their directions are random."""


@contextmanager
def random_directions() -> Iterator[None]:
    """Split every candidate along a random direction, the same in every run."""

    def draw_direction(
        gradient: Any, at: Tensor, *, distance: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        directions = torch.randn(at.shape[-2:], generator=generator).to(at).expand(at.shape)
        return directions / directions.norm(dim=-1, keepdim=True), at.new_full(at.shape[:-1], -1.0)

    with mock.patch("exhume.optimise.splitting.lowest_curvature", draw_direction):
        yield


def attack_weight_difference(case: Case, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train one network, and yield one row per search."""
    data = exhume.load("mnist", classes="odd-even", size=case.size, test=0, seed=seed)
    view = exhume.train(data, model=exhume.MLP(width=case.width), device="cpu", seed=seed).view()
    for row, attack in choose_attacks(WeightDifference(steps=options.steps, **case.settings), case):
        found = attack.run(view, seed=seed, device="cpu")
        assert found.history is not None
        counts = count_recovered(found, data)
        yield row | counts | {"unexplained": float(found.history[-1]), "seconds": found.seconds, "attack": found.attack}


def attack_max_margin(case: Case, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train one network with weight decay, and yield one row per search of its final weights."""
    data = draw("mnist", "all", size=case.size, held_out=400, seed=seed, shrink=2)
    recipe = weight_decay_recipe(loss="ce", weight_decay=1e-3, width=case.width, steps=3000)
    view = replace(exhume.train(data, device="cpu", seed=seed, **recipe).view(), initial=None)
    for row, attack in choose_attacks(MaxMargin(steps=options.steps, **case.settings), case):
        found = attack.run(view, seed=seed, device="cpu")
        ranks = relative_ranks(found, data)
        level = ranks.level(FPR)
        yield row | {
            "good": level.recovered,
            "null": level.holdout_recovered * case.size / len(data.holdout),
            "auc": ranks.auc,
            "exact": count_exact(found, data.train),
            "unexplained": min(found.diagnostics["residuals"]),
            "seconds": found.seconds,
            "attack": found.attack,
        }


def choose_attacks(attack: Any, case: Case) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the start of a row and its attack; inside the loop, splits go where the variant wants them."""
    for final, (variant, (splits, is_random)) in itertools.product(case.finals, VARIANTS.items()):
        chosen = replace(attack, oversampling=final, splits=splits)
        row = {"variant": variant, "candidates_per_image": final, "start_per_image": final / 2**splits}
        if is_random:
            with random_directions():
                yield row, chosen
        else:
            yield row, chosen


def print_row(row: dict[str, Any]) -> None:
    """Print the result of one search."""
    print(
        f"{row['case']:11} seed {row['seed']}  {row['candidates_per_image']:g}N {row['variant']:20} "
        f"good {row['good']:3} fine {row.get('fine', '-'):>3} null {row['null']:g} of {row['N']}  "
        f"unexplained {row['unexplained']:.4f} {row['seconds']:6.1f} s",
        flush=True,
    )


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cases", default=",".join(CASES), help=f"comma-separated, from {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "sample_splitting.json"
    results: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/sample_splitting.py", *(words or sys.argv[1:])]),
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rows": json.loads(file.read_text())["rows"] if file.exists() else [],
    }
    for name, seed in itertools.product(options.cases.split(","), range(options.seeds)):
        case, about = CASES[name], {"case": name, "seed": seed, "steps": options.steps}
        if any(row.items() >= about.items() for row in results["rows"]):
            continue
        work = attack_max_margin if name == "max-margin" else attack_weight_difference
        rows = []
        for row in work(case, seed, options):
            rows.append(about | {"N": case.size, "W": case.width} | row)
            print_row(rows[-1])
        results["rows"] += rows
        file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
