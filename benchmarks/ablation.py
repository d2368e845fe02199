"""Attack the same networks with one strategy of the search, or several, switched off: what does each add?

A strategy is switched off by replacing functions of :mod:`exhume.attacks.gates.rounds`; a name that is no longer there
is an error. Prints one row per attack and a table of networks by strategies (exact / certified / seconds, summed over
seeds), and writes ``ablation.json``.

    PYTHONPATH=src python benchmarks/ablation.py --data-dir DIR --out DIR [--seeds 2] [--at-once 16] [--seconds 60]
    PYTHONPATH=src python benchmarks/ablation.py --data-dir DIR --without nothing,families,families+guessing
"""

import argparse
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import near_duplicates
import small_victims
import torch
from small_victims import attack, build_network, draw_images, run_cases, train_network
from torch import Tensor

import exhume
from exhume.attacks.gates import rounds

Victim = tuple[exhume.AttackerView, Tensor]


def no_rows(problem: Any, *_: Any) -> Tensor:
    return problem.rows.new_zeros(0, problem.rank)


def random_codes(problem: Any, *_: Any) -> Tensor:
    """Return random inputs in place of the changes of single units."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(problem.units, problem.rank, generator=generator, dtype=torch.float64)
    inputs = (problem.strengths * noise) @ problem.basis.T
    return problem.orient(inputs) @ problem.basis


def changes_of_units(problem: Any, directions: Tensor, _: Any, count: int, generator: torch.Generator) -> Tensor:
    """Return the changes of units in place of random inputs."""
    units = torch.randint(problem.rows.shape[1], (count,), generator=generator)
    changes = (problem.strengths[:, None] * problem.rows[:, units]).T @ problem.basis.T
    return problem.orient(changes @ directions @ directions.T)


def same_rows(_: Any, rows: Tensor, *__: Any) -> Tensor:
    return rows


def no_rows_of_search(search: Any, *_: Any) -> Tensor:
    return no_rows(search.problem)


def do_nothing(*_: Any) -> None:
    pass


STRATEGIES: dict[str, dict[str, Callable[..., Any]]] = {
    "nothing": {},
    "column seeds": {"column_seeds": random_codes},
    "random starts": {"draw_starts": changes_of_units},
    "random sets": {"rows_through_units": no_rows},
    "peeling": {"RowSearch._peel": do_nothing},
    "silent units": {"RowSearch._rows_by_silence": no_rows_of_search},
    "explaining": {"RowSearch._rows_by_explaining": no_rows_of_search},
    "fitting again": {"RowSearch._fit_again": same_rows},
    "families": {"rows_in_families": no_rows},
    "joint exchange": {"exchange_rows": same_rows},
    "guessing": {"RowSearch._guess_missing": do_nothing},
}
"""What to replace in the search, by the strategy that this switches off.

A search needs inputs to start from, so columns and random starts replace each other.
"""


@contextlib.contextmanager
def switched_off(strategy: str) -> Iterator[None]:
    """Run without a strategy, or several joined by "+".

    Raises:
        AttributeError: where the search no longer has a function that is to be replaced.
    """
    with contextlib.ExitStack() as stack:
        for each in strategy.split("+"):
            for path, stand_in in STRATEGIES[each].items():
                *owners, name = path.split(".")
                owner = functools.reduce(getattr, owners, rounds)
                stack.enter_context(patch.object(owner, name, stand_in))
        yield


def lively(source: str, seed: int, data_dir: str | None) -> Victim:
    """Return a network whose gates moved much: 12 images, 256 units, 400 steps."""
    inputs, labels = draw_images(source, 12, seed, data_dir)
    flat = inputs.flatten(1)
    rate = 0.03 if source == "mnist" else 0.01
    training = {"evidence": "training", "rate": rate, "momentum": 0.9, "steps": 400}
    held = train_network(build_network(flat.shape[1], (256,), 10, seed), labels, lambda _: flat, **training)
    return held.view(), flat


def trained_by_exhume(source: str, classes: Any, size: int, width: int, seed: int, data_dir: str | None) -> Victim:
    data = exhume.load(source, classes=classes, size=size, seed=seed, data_dir=data_dir, test=0)
    model = exhume.MLP(width=width, depth=2)
    victim = exhume.train(data, model=model, seed=seed, stop_loss=1e-6, device="cpu")
    return victim.view(), data.train.inputs.flatten(1)


def gradient(source: str, seed: int, data_dir: str | None) -> Victim:
    """Return the gradient of 20 images after 50 steps, 256 units."""
    inputs, labels = draw_images(source, 20, seed, data_dir)
    flat = inputs.flatten(1)
    training = {"evidence": "gradient", "rate": 0.01, "momentum": 0.9, "steps": 50}
    held = train_network(build_network(flat.shape[1], (256,), 10, seed), labels, lambda _: flat, **training)
    return held.view(), flat


def pairs(source: str, seed: int, data_dir: str | None) -> Victim:
    """Return a network trained on 10 pairs of near-duplicates, 512 units."""
    inputs, labels = near_duplicates.make_pairs(source, "noise", 0.05, seed, data_dir, pairs=10)
    return near_duplicates.train_on_pairs(inputs, labels, seed, width=512).view(), inputs


def make_victim(name: str, seed: int, data_dir: str | None, faces: str) -> Victim:
    """Return what an attacker holds of one of ``VICTIMS``, and the inputs, flat."""
    kind, _, source = name.partition(" ")
    if name == "faces 40":
        return trained_by_exhume(faces, None, 40, 1024, seed, data_dir)
    if name == "mnist 50":
        return trained_by_exhume("mnist", "odd-even", 50, 512, seed, data_dir)
    return {"lively": lively, "gradient": gradient, "pairs": pairs}[kind](source, seed, data_dir)


VICTIMS = (
    "lively mnist",
    "lively cifar-10",
    "gradient mnist",
    "gradient cifar-10",
    "pairs mnist",
    "mnist 50",
    "faces 40",
)


def measure(
    victim: str, without: str, seed: int, *, data_dir: str | None, seconds: float | None, faces: str = "faces"
) -> dict[str, Any]:
    """Attack one network without a strategy."""
    view, inputs = make_victim(victim, seed, data_dir, faces)
    with switched_off(without):
        return {"images": len(inputs)} | attack(view, inputs, seed=seed, seconds=seconds)


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line per victim: exact / certified / seconds for each strategy that was off, summed over seeds."""
    lines, measured = [], dict.fromkeys(row["case"]["without"] for row in rows)
    order = [*filter(measured.__contains__, STRATEGIES), *(without for without in measured if "+" in without)]
    for victim in dict.fromkeys(row["case"]["victim"] for row in rows):
        mine = [row for row in rows if row["case"]["victim"] == victim]
        cells = {}
        for without in order:
            group = [row for row in mine if row["case"]["without"] == without]
            sums = [sum(row[name] for row in group) for name in ("exact", "certified", "seconds")]
            failed = sum("exception" in row for row in group)
            note = f", {failed} failed" if failed else ""
            cells[without] = f"{sums[0]} / {sums[1]} / {sums[2]:.0f}{note}" if group else ""
        images = sum(row["images"] for row in mine if row["case"]["without"] == mine[0]["case"]["without"])
        lines.append({"victim": victim, "images": images, **cells})
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--faces", default="faces", help="faces as .npz, if the bundled ones cannot be read")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--without", default=",".join(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="time limit per attack")
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    parser.add_argument("--resume", action="store_true", help="Keep the rows of an earlier run in the same folder.")
    options = parser.parse_args(arguments)
    for strategy in STRATEGIES:  # a renamed function is found before anything is measured
        with switched_off(strategy):
            pass
    victims = options.victims.split(",")
    if "faces 40" in victims and not small_victims.readable_sources([options.faces], options.data_dir):
        victims.remove("faces 40")
    every = itertools.product(range(options.seeds), victims, options.without.split(","))
    cases = [{"victim": victim, "without": without, "seed": seed} for seed, victim, without in every]
    limits = {"data_dir": options.data_dir, "seconds": options.seconds, "faces": options.faces}
    rows = run_cases(
        functools.partial(measure, **limits),
        cases[::-1],
        at_once=options.at_once,
        file=options.out / "ablation.jsonl",
        resume=options.resume,
    )
    small_victims.write_results(options.out / "ablation.json", options.seconds, summarise(rows), rows)


if __name__ == "__main__":
    main()
