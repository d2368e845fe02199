"""Measure how well SimulatedTraining recovers images of residual networks, beside WeightDifference.

    PYTHONPATH=src python benchmarks/simulated_training.py --data-dir DIR --out DIR [--cases digits-10] [--seconds 60]

Trains one victim per case, runs every variant on it, and prints one row per attack: the mean structural similarity of
training images and their matched candidates (``ssim``: matched by distance, as everywhere in exhume; ``ssim_matched``:
by the similarity itself, as in the paper), the same for held-out images ("null"), and the number of images with a mean
squared error below 0.01. With ``--seconds`` the number of steps is planned from timed steps, so that each attack
takes about as long. Rows and pictures are written to ``simulated_training.json`` and ``simulated_training.pt`` as they
are measured.
"""

import argparse
import json
import os
import platform
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch

import exhume
from exhume.attacks import Attack, SimulatedTraining, WeightDifference
from exhume.core.devices import resolve_device
from exhume.evaluation.distances import ssim
from exhume.evaluation.matching import match
from exhume.training.prediction import accuracy

TIMED_STEPS = 6
"""Steps of the run whose duration decides the number of steps; on a GPU the first three are slow, and so is the fourth,
which records the graph."""
RECIPE: dict[str, Any] = {"loss": "ce", "lr": 0.1, "momentum": 0.0, "steps": 20, "stop_loss": 0.0, "patience": 0}
"""Full batches and 20 steps of plain SGD, as Tian et al. (2025), who begin at pretrained weights with rate 0.01."""


@dataclass(frozen=True)
class Case:
    """One victim."""

    source: str
    size: int
    model: exhume.ResNet
    training: dict[str, Any] = field(default_factory=dict)
    pretrained: int = 0
    """Other images of the source that the initial weights were trained on; then the running statistics are frozen."""


SMALL = exhume.ResNet(channels=16, blocks=(1, 1))
CASES = {
    "digits-10": Case("digits", 10, SMALL, {"steps": 10}),
    "digits-10-adam": Case("digits", 10, SMALL, {"steps": 10, "optimiser": "adam", "lr": 1e-3, "momentum": 0.9}),
    "digits-10-batches": Case("digits", 10, SMALL, {"steps": 10, "batch_size": 5}),
    "digits-10-long": Case("digits", 10, SMALL, {"steps": 200, "lr": 0.02, "momentum": 0.5}),
    "cifar-10-small": Case("cifar-10", 10, SMALL, {"steps": 10}),
    "resnet18-20": Case("cifar-10", 20, exhume.ResNet()),
    "resnet18-20-slow": Case("cifar-10", 20, exhume.ResNet(), {"lr": 0.01}),
    "resnet18-20-adam": Case("cifar-10", 20, exhume.ResNet(), {"optimiser": "adam", "lr": 1e-3, "momentum": 0.9}),
    "resnet18-20-long": Case("cifar-10", 20, exhume.ResNet(), {"steps": 200, "momentum": 0.9, "lr": 0.01}),
    "resnet18-50": Case("cifar-10", 50, exhume.ResNet()),
    "digits-10-tuned": Case("digits", 10, SMALL, {"lr": 0.01}, pretrained=300),
    "small-10-tuned": Case("cifar-10", 10, SMALL, {"lr": 0.01}, pretrained=500),
    "resnet18-20-tuned": Case("cifar-10", 20, exhume.ResNet(), {"lr": 0.01}, pretrained=1800),
    "resnet18-50-tuned": Case("cifar-10", 50, exhume.ResNet(), {"lr": 0.01}, pretrained=1800),
}


PRETRAINING: dict[str, Any] = {"loss": "ce", "lr": 0.05, "momentum": 0.9, "batch_size": 100, "epochs": 20}
PRETRAINING |= {"weight_decay": 5e-4, "stop_loss": 0.0, "patience": 0}


def make_view(
    case: Case, data: exhume.Dataset, options: argparse.Namespace
) -> tuple[exhume.AttackerView, dict[str, Any]]:
    """Train a victim; return what an attacker holds, and how well the network fits."""
    recipe = RECIPE | case.training
    if not case.pretrained:
        victim = exhume.train(data, model=case.model, device=options.device, seed=options.seed, **recipe)
        return victim.view(), {"loss": victim.result["loss"], "accuracy": victim.result["accuracy"]}
    assert data.test is not None
    public = replace(data, train=data.test.take(slice(case.pretrained)), test=None)
    base = exhume.train(public, model=case.model, device=options.device, seed=options.seed, **PRETRAINING)
    view = replace(base.view(), initial=base.final).to(resolve_device(options.device))
    network = view.module(view.final).requires_grad_(True)  # in evaluation mode: running statistics stay
    inputs, labels = view.to_model(data.train.inputs.to(view.device)), data.train.labels.to(view.device)
    optimiser = torch.optim.SGD(network.parameters(), lr=recipe["lr"], momentum=recipe["momentum"])
    for _ in range(recipe["steps"]):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
    outputs = network(inputs).detach()
    final = {name: weight.detach().clone() for name, weight in network.state_dict().items()}
    facts = {"loss": "ce", "optimiser": "sgd"} | {name: recipe[name] for name in ("lr", "momentum", "steps")}
    fit = {
        "loss": float(torch.nn.functional.cross_entropy(outputs, labels)),
        "accuracy": float((outputs.argmax(1) == labels).float().mean()),
        "pretrained_loss": base.result["loss"],
        "pretrained_accuracy_holdout": accuracy(base, data.holdout),
    }
    return replace(view, final=final, training=facts), fit


def choose_attack(text: str, case: Case) -> Attack:
    """Return an attack from text such as ``weight-difference`` or ``statistics_weight=0+steps=300``."""
    if text.startswith("weight-difference"):
        _, _, steps = text.partition(":")
        return WeightDifference(candidates=2 * case.size, **({"steps": int(steps)} if steps else {}))
    given = dict(one.split("=") for one in text.split("+") if one and one != "default")
    return SimulatedTraining(candidates=case.size, **{name: _read(value) for name, value in given.items()})


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class SearchOverError(Exception):
    """Ends a run that is only timed."""


def plan(attack: Attack, view: exhume.AttackerView, seconds: float | None, device: str) -> Attack:
    """Return the attack with as many steps as fit into ``seconds``, by the duration of timed steps."""
    if seconds is None or not isinstance(attack, SimulatedTraining):
        return attack
    fine = time_step(replace(attack, coarse_share=0.0), view, device)
    coarse = time_step(replace(attack, simulated_steps=attack.coarse_steps), view, device)
    step = fine + attack.coarse_share * (coarse - fine)
    return replace(attack, steps=max(10, int(seconds / step)))


def time_step(attack: SimulatedTraining, view: exhume.AttackerView, device: str) -> float:
    """Return the seconds of the last of a few steps."""
    moments: list[float] = []

    def note(stage: str, done: int, total: int, text: str = "") -> None:
        if stage == "search":
            moments.append(time.perf_counter())
        if stage == "confidence":
            raise SearchOverError

    with suppress(SearchOverError):
        replace(attack, steps=TIMED_STEPS).run(view, device=device, progress=note)
    print(f"{moments[-1] - moments[-2]:.4f} s per step of {attack.simulated_steps}", flush=True)
    return moments[-1] - moments[-2]


def measure(name: str, options: argparse.Namespace, results: dict[str, Any], keep: dict[str, Any]) -> None:
    """Train one victim, run every attack on it, and write what is known after each."""
    case = CASES[name]
    source = options.cifar if case.source == "cifar-10" else case.source
    data = exhume.load(source, size=case.size, test=case.pretrained, seed=options.seed, data_dir=options.data_dir)
    view, fit = make_view(case, data, options)
    print(name, fit, flush=True)
    for text in options.variants:
        row: dict[str, Any] = {"case": name, "seed": options.seed, "N": case.size, "variant": text}
        row |= {"training": view.training.facts(), "fit": fit}
        try:
            attack = plan(choose_attack(text, case), view, options.seconds, options.device)
            found = attack.run(view, seed=options.seed, device=options.device)
            row |= score(found, data)
            keep[f"{name}/{text}"] = found.inputs
            keep[f"{name}/train"], keep[f"{name}/holdout"] = data.train.inputs, data.holdout.inputs
        except Exception as error:  # an attack that fails must not stop the others
            traceback.print_exc()
            row["error"] = f"{type(error).__name__}: {error}"
        results["rows"].append(row)
        (options.out / "simulated_training.json").write_text(json.dumps(results, indent=2) + "\n")
        torch.save(keep, options.out / "simulated_training.pt")
        print(
            {key: value for key, value in row.items() if key not in ("training", "attack", "diagnostics")}, flush=True
        )


def matched_ssim(candidates: torch.Tensor, images: torch.Tensor) -> float:
    """Return the mean structural similarity of pairs matched by it, as Tian et al. (2025) score; the largest first."""
    table = torch.stack([ssim(candidates.double(), image.double().expand_as(candidates)) for image in images], 1)
    pairs = match(1 - table)
    return float(table[pairs[:, 0], pairs[:, 1]].mean())


def score(found: exhume.Reconstruction, data: exhume.Dataset) -> dict[str, Any]:
    """Return the scores on training images, each beside the same score on held-out images."""
    evaluation = exhume.evaluate(found, data)
    train, null = evaluation.train, evaluation.holdout
    assert train is not None
    assert null is not None
    return {
        "attack": found.attack,
        "ssim": round(float(train.ssim.mean()), 4),
        "null_ssim": round(float(null.ssim.mean()), 4),
        "ssim_matched": round(matched_ssim(found.inputs, data.train.inputs), 4),
        "null_ssim_matched": round(matched_ssim(found.inputs, data.holdout.inputs), 4),
        "similar": int((train.ssim > 0.4).sum()),
        "null_similar": int((null.ssim > 0.4).sum()),
        "good": train.good,
        "null_good": null.good,
        "mean_ncc": round(float(train.ncc.mean()), 4),
        "null_ncc": round(float(null.ncc.mean()), 4),
        "auc": None if evaluation.calibration is None else evaluation.calibration.auc,
        "confidence_auc": evaluation.confidence_auc,
        "mean_confidence": float(found.confidence.mean()),
        "seconds": round(found.seconds, 1),
        "outcome": found.outcome.value,
        "diagnostics": dict(found.diagnostics),
        "steps": found.diagnostics["steps"],
        "cosine_distance": found.diagnostics.get("cosine_distance"),
        "objective": None if found.history is None else float(found.history[-1]),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument(
        "--cifar", default="cifar-10", help="source of the CIFAR-10 cases, such as an .npz file of some"
    )
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out/benchmarks")))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cases", default="digits-10", help=f"comma-separated, from {', '.join(CASES)}")
    parser.add_argument(
        "--variants", nargs="+", default=["default", "weight-difference"],
        help="settings such as labels=learned+statistics_weight=0, or weight-difference",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=None, help="of each attack; by default its own steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    cuda = torch.cuda.is_available() and options.device != "cpu"
    machine = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    command = "python benchmarks/simulated_training.py " + " ".join(sys.argv[1:] if arguments is None else arguments)
    results: dict[str, Any] = {"command": command, "machine": machine, "torch": torch.__version__, "rows": []}
    keep: dict[str, Any] = {}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.cases.split(","):
        measure(name, options, results, keep)


if __name__ == "__main__":
    main()
