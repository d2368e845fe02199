"""Measure what more could be read from the same final weights: ideas for ``MaxMargin``, each against the default.

Every variant attacks the same trained networks with the same steps and seeds, and sees the weights alone. Points where
edges meet are not searched, because no idea changes them. Strengths of penalties were fixed before the runs; the
variants of rivals were added after a diagnosis with the true images.

- ``soft rivals``, ``all rivals``: the margin of a candidate has a multiplier per rival class instead of one for the
  best rival; soft: divided among rivals by the network's own probabilities; moving: the same with exact gradients.
- ``labels``, ``labels nnls``, ``nnls``: at three moments each candidate takes the label that would lower the residual
  most, or multipliers are solved again by non-negative least squares, or both.
- ``free labels``: a multiplier per candidate and class instead of a label. ``free signs``: ``Stationarity``.
- ``gates NAME STRENGTH``: gates of the first layer have a shift in logits per unit and candidate, a shift per unit, or
  a log-sharpness per unit, which are fitted together with candidates and penalised.
- ``all layers``, ``shrunk target``, ``filtered layers``: without weight decay all layers count: as they are, with the
  start's noise shrunk out of them, or only along singular directions above the noise, each with its Wiener gain.

Rows are added to ``final_weights_ablation.json``; those that are there already are kept. Images come from
``EXHUME_DATA``.

    PYTHONPATH=src python benchmarks/final_weights_ablation.py --out DIR [--cases mnist-0,...] [--variants default,...]
"""

import argparse
import itertools
import json
import platform
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numerical_only  # noqa: F401 # before exhume
import torch
from final_weights_ideas import VariedMaxMargin, timed_runs
from torch import Tensor

from exhume.attacks.stationarity import Stationarity, stages
from exhume.attacks.stationarity.final_weights import FinalWeights
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.stationarity.runs import Knobs, draw_starts
from exhume.clues.clues import clues_of
from exhume.clues.known_loss import balanced_labels
from exhume.records import AttackerView, Dataset, Reconstruction, count_outputs
from exhume.records.comparison import EXACT
from exhume.studies.buzaglo2023.cases import QUICK, Case, train_case
from exhume.studies.buzaglo2023.studies import TWO_CLASSES
from exhume.studies.metrics import FPR, count_similar, relative_ranks
from exhume.studies.study import StudyRun
from exhume.training.kkt import kkt_report

TEN_CIFAR = replace(TWO_CLASSES, classes="all", loss="ce")
CASES = {
    "mnist-0": Case(label="MNIST, ten classes, weight decay 0"),
    "mnist-1e-3": Case(label="MNIST, ten classes, weight decay 1e-3", weight_decay=1e-3),
    "cifar-2-0": replace(TWO_CLASSES, label="CIFAR-10, two classes, weight decay 0"),
    "cifar-2-2e-3": replace(TWO_CLASSES, label="CIFAR-10, two classes, weight decay 2e-3", weight_decay=2e-3),
    "cifar-10-0": replace(TEN_CIFAR, label="CIFAR-10, ten classes, weight decay 0"),
    "cifar-10-2e-3": replace(TEN_CIFAR, label="CIFAR-10, ten classes, weight decay 2e-3", weight_decay=2e-3),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "soft rivals": {"form": "soft"},
    "moving rivals": {"form": "exact"},
    "all rivals": {"form": "all"},
    "all rivals as built": {},
    "labels": {"relabel": True},
    "nnls": {"resolve": True},
    "labels nnls": {"relabel": True, "resolve": True},
    "all rivals + gates candidate 0.01": {"form": "all", "gates": "candidate", "strength": 0.01},
    "all rivals + gates candidate 0.1": {"form": "all", "gates": "candidate", "strength": 0.1},
    "all rivals + gates unit 0.01": {"form": "all", "gates": "unit", "strength": 0.01},
    "all rivals + all layers": {"form": "all", "layers": "plain"},
    "all rivals + shrunk target": {"form": "all", "layers": "shrunk"},
    "all rivals + filtered layers": {"form": "all", "layers": "filtered"},
    "free labels": {"form": "classes"},
    "free signs": {},
    "gates candidate 0.01": {"gates": "candidate", "strength": 0.01},
    "gates candidate 0.1": {"gates": "candidate", "strength": 0.1},
    "gates unit 0.01": {"gates": "unit", "strength": 0.01},
    "gates sharpness 0.01": {"gates": "sharpness", "strength": 0.01},
    "all layers": {"layers": "plain"},
    "shrunk target": {"layers": "shrunk"},
    "filtered layers": {"layers": "filtered"},
}
TEN_CLASSES_ONLY = {name for name in VARIANTS if "rivals" in name}
NO_DECAY_ONLY = {name for name in VARIANTS if "layers" in name or "target" in name}
TRUTH = {name for name in VARIANTS if name == "default" or "riv" in name or "gates" in name or name in NO_DECAY_ONLY}
"""Variants for which ``--truth`` is measured."""


def count_exact(found: Reconstruction, images: Tensor) -> int:
    """Count images that some candidate shows with no pixel further off than 0.02."""
    return int((torch.cdist(images.flatten(1), found.inputs.flatten(1), p=float("inf")).amin(1) < EXACT).sum())


def measure(found: Reconstruction, data: Dataset) -> dict[str, Any]:
    """Return the counts of one attack, with those of held-out images."""
    ranks = relative_ranks(found, data)
    level, size = ranks.level(FPR), len(data.train)
    similar, similar_null, correlated = count_similar(found, data)
    return {
        "recovered": level.recovered,
        "recovered_null": level.holdout_recovered * size / len(data.holdout),
        "similar": similar,
        "similar_null": similar_null,
        "correlated": correlated,
        "auc": ranks.auc,
        "exact": count_exact(found, data.train.inputs),
        "exact_null": count_exact(found, data.holdout.inputs),
        "unexplained": min(found.diagnostics["residuals"]),
        "candidates": len(found),
        "seconds": found.seconds,
    }


def unexplained_by_truth(attack: FinalWeights, view: AttackerView, data: Dataset, knobs: dict[str, float]) -> float:
    """Return what the true images leave unexplained with the multipliers (and gates) that are fitted to them.

    An attacker cannot compute it: it says what an equation can decide, and chooses nothing.
    """
    span, generator = clues_of(view).span, torch.Generator().manual_seed(0)
    size, outputs = len(data.train), count_outputs(view.model, view.input_shape)
    problem = attack._problem(view, size, span, generator)
    fixed = Knobs(**{key: torch.tensor([value]) for key, value in (knobs | {"input_rate": 1e-12}).items()})
    _, raw = draw_starts(problem, size, outputs, fixed, generator)
    order = torch.empty(size, dtype=torch.long)  # the images in the order of the candidates' labels
    order[balanced_labels(size, outputs, torch.device("cpu")).argsort(stable=True)] = data.train.labels.argsort()
    truth = problem.space.project(view.to_model(data.train.inputs[order]).flatten(1).to(problem.target[0]))
    return float(timed_runs(problem, (truth[None], raw), fixed, steps=2 * attack.steps).residuals[0])


def print_means(rows: list[dict[str, Any]]) -> None:
    """Print the mean over seeds of every case and variant."""
    keys = ("recovered", "recovered_null", "similar", "similar_null", "correlated", "auc", "exact", "unexplained",
            "unexplained_by_truth")  # fmt: skip
    print(f"{'':49}" + "".join(f"{key:>15}" for key in keys))
    for case, variant in itertools.product(CASES, VARIANTS):
        own = [row for row in rows if (row["case"], row["variant"]) == (case, variant)]
        if own:
            means = "".join(f"{statistics.fmean(row.get(key, 0) for row in own):15.3f}" for key in keys)
            print(f"{case:14} {variant:34}{means}")


def attack_of(case: Case, variant: str) -> FinalWeights:
    """Return the attack of a variant."""
    chosen = VARIANTS[variant]
    common = QUICK | case.settings | {"edges": False} | ({"upper_layers": 1.0} if chosen.get("layers") else {})
    if variant == "all rivals as built":
        return MaxMargin(**common, rivals="all")
    return Stationarity(**common) if variant == "free signs" else VariedMaxMargin(**common, **chosen)


def fits(case: Case, variant: str, truth: bool) -> bool:
    """Return whether a variant says something about a case."""
    if truth:
        return case.source == "mnist" and variant in TRUTH and (case.weight_decay == 0 or variant not in NO_DECAY_ONLY)
    return (case.loss == "ce" or variant not in TEN_CLASSES_ONLY) and (
        case.weight_decay == 0 or variant not in NO_DECAY_ONLY
    )


def measure_network(
    name: str, seed: int, wanted: list[tuple[str, int]], truth: bool, run: StudyRun
) -> list[dict[str, Any]]:
    """Train one network, and return a row per variant and seed of the attack."""
    case, rows = CASES[name], []
    data = case.draw(seed)
    victim = train_case(case, data, seed, run)
    report = kkt_report(victim, data)
    view = replace(victim.view(), initial=None)
    for variant, attack_seed in wanted:
        attack = attack_of(case, variant)
        with mock.patch.object(stages, "minimise_runs", timed_runs):
            found = attack.run(view, seed=1000 * attack_seed + seed, device="cpu")
        row = {"case": name, "seed": seed, "variant": variant, "attack_seed": attack_seed} | measure(found, data)
        if truth:
            row["unexplained_by_truth"] = unexplained_by_truth(attack, view, data, found.diagnostics["settings"][0])
        rows.append(row | {"kkt_residual": report.residual, "kkt_margin_residual": report.margin_residual})
        print(*(f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in row.items()))
    return rows


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1, help="seeds of the attack per network")
    parser.add_argument("--truth", action="store_true", help="what the true images leave unexplained (MNIST)")
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "final_weights_ablation.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"rows": [], "truth": []}
    command = " ".join(["python", "benchmarks/final_weights_ablation.py", *(words or sys.argv[1:])])
    results |= {
        "commands": [*results.get("commands", ()), command],
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    rows = results["truth" if options.truth else "rows"]
    run = StudyRun(folder=options.out, device="cpu")
    keys = ("case", "seed", "variant", "attack_seed")
    for name, seed in itertools.product(options.cases.split(","), range(options.seeds)):
        done = [tuple(row[key] for key in keys) for row in rows]
        wanted = [
            (variant, attack_seed)
            for variant, attack_seed in itertools.product(options.variants.split(","), range(options.repeats))
            if fits(CASES[name], variant, options.truth) and (name, seed, variant, attack_seed) not in done
        ]
        if wanted:
            rows += measure_network(name, seed, wanted, options.truth, run)
            file.write_text(json.dumps(results, indent=1) + "\n")
    print_means(rows)


if __name__ == "__main__":
    main()
