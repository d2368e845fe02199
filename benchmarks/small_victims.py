"""Small networks to attack, what an attacker holds of each, and many attacks at a time.

Everything here is drawn from a seed. Networks are plain PyTorch ones with default initial weights, on pixels in [0, 1].
"""

import copy
import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import Tensor, nn
from torch.nn import functional

import exhume
from exhume.attacks import Attack, GateCertificate
from exhume.core.errors import ExhumeError
from exhume.records.optimiser_state import OptimiserState, read_state

SOURCES = ("mnist", "cifar-10", "faces", "digits")
EVIDENCE = ("training", "gradient", "buffer", "adam")
EXACT = 0.02
"""Largest error of any pixel that still counts as exact."""
FIRST = ("0.weight", "0.bias")
"""The parameters of the first layer of :func:`build_network`."""
LISTS = ("certificates", "nearest")
"""What a row contains per input; too much to print."""

Tensors = dict[str, Tensor]


@functools.lru_cache
def load_images(source: str, data_dir: str | None) -> tuple[Tensor, Tensor]:
    """Return 100 images of a source, balanced over its classes, and their labels."""
    classes = "all" if source in ("mnist", "cifar-10", "digits") else None
    data = exhume.load(source, classes=classes, size=100, seed=0, centre=False, test=0, data_dir=data_dir)
    return data.train.inputs, data.train.labels


def draw_images(source: str, size: int, seed: int, data_dir: str | None) -> tuple[Tensor, Tensor]:
    """Draw images with labels by a seed."""
    inputs, labels = load_images(source, data_dir)
    chosen = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:size]
    return inputs[chosen], labels[chosen]


def readable_sources(wanted: Sequence[str], data_dir: str | None) -> list[str]:
    """Return the sources whose files and packages are here, and print which are not."""
    readable = []
    for source in wanted:
        try:
            load_images(source, data_dir)
        except (ExhumeError, ImportError) as reason:
            print(f"without {source}: {reason}", flush=True)
        else:
            readable.append(source)
    return readable


def build_network(inputs: int, widths: Sequence[int], outputs: int, seed: int) -> nn.Sequential:
    """Build a dense ReLU network on flat inputs, with PyTorch's default initial weights."""
    torch.manual_seed(seed)
    sizes = (inputs, *widths)
    layers: list[nn.Module] = []
    for below, above in itertools.pairwise(sizes):
        layers += [nn.Linear(below, above), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


def copy_weights(model: nn.Module) -> Tensors:
    return copy.deepcopy(dict(model.state_dict()))


@dataclass(frozen=True, kw_only=True)
class Held:
    """What an attacker holds: weights and one sum of gradients; and, for the judge alone, the inputs behind it."""

    model: nn.Module
    evidence: str
    weights: Tensors
    """The initial weights of a training; for a gradient or a buffer the weights that it comes with."""
    total: Tensors
    """The sum of gradients by parameter name, in float64: a weight change, a gradient or a first moment."""
    state: OptimiserState | None = None
    """What an optimiser's file states besides its buffer."""
    seen: Tensor
    """Every input that the network was trained on, flat."""
    made_of: Tensor | None = None
    """Images that the sum of gradients was made of beside the inputs: those mixed or varied, or never trained on."""

    def view(self) -> exhume.AttackerView:
        """Return the attacker's view, with everything rounded to float32."""
        total = {name: value.float() for name, value in self.total.items()}
        given: dict[str, Any] = {"final": self.weights}
        if self.evidence == "training":
            moved = {name: (value.double() + self.total[name]).float() for name, value in self.weights.items()}
            given = {"initial": self.weights, "final": moved}
        elif self.evidence == "gradient":
            given["gradient"] = total
        else:
            assert self.state is not None
            given["optimiser_state"] = self.state.with_moments(total, self.state.second_moment)
        shape = (self.seen.shape[1],)
        return exhume.AttackerView(model=self.model, input_shape=shape, bounds=(0.0, 1.0), **given)


def train_network(
    model: nn.Module,
    labels: Tensor,
    batches: Callable[[int], Tensor],
    *,
    evidence: str,
    rate: float,
    momentum: float = 0.0,
    steps: int = 100,
    size: int | None = None,
    adam_epsilon: float | None = None,
    example_weights: Tensor | None = None,
) -> Held:
    """Train with a cross-entropy and return what an attacker holds afterwards.

    Args:
        model: the network with its initial weights.
        labels: one per example.
        batches: returns the inputs of all examples as a step sees them, flat.
        evidence: one of ``EVIDENCE``; a gradient is taken after the steps, on inputs of their own.
        rate: learning rate of SGD; a hundredth of it for Adam. Halved, and all begun again, if training diverges.
        momentum: of SGD; a buffer needs one.
        steps: number of steps.
        size: examples per step; None: all.
        adam_epsilon: train with Adam and this constant in its denominator; None: SGD.
        example_weights: weight of each example in the loss.
    """
    initial = copy_weights(model)
    importance = torch.ones(len(labels)) if example_weights is None else example_weights

    def backward(inputs: Tensor, chosen: Tensor) -> float:
        losses = functional.cross_entropy(model(inputs[chosen]), labels[chosen], reduction="none")
        loss = (losses * importance[chosen]).mean()
        model.zero_grad()
        loss.backward()
        return loss.item()

    while True:
        model.load_state_dict(initial)
        generator = torch.Generator().manual_seed(0)
        rule: torch.optim.Optimizer
        if adam_epsilon is None:
            rule = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
        else:
            rule = torch.optim.Adam(model.parameters(), lr=rate / 100, eps=adam_epsilon)
        seen, loss = [], 0.0
        for step in range(steps):
            inputs = batches(step)
            chosen = torch.randperm(len(labels), generator=generator)[:size]
            seen.append(inputs[chosen])
            loss = backward(inputs, chosen)
            rule.step()
        if evidence == "gradient":
            inputs = batches(steps)
            seen.append(inputs)
            loss = backward(inputs, torch.arange(len(labels)))
        if math.isfinite(loss) and all(bool(weight.isfinite().all()) for weight in model.parameters()):
            break
        rate /= 2
    every = torch.cat(seen).unique(dim=0)
    final = copy_weights(model)
    if evidence == "training":
        total = {name: final[name].double() - initial[name].double() for name in final}
        return Held(model=model, evidence=evidence, weights=initial, total=total, seen=every)
    if evidence == "gradient":
        total = {name: weight.grad.double() for name, weight in model.named_parameters() if weight.grad is not None}
        return Held(model=model, evidence=evidence, weights=final, total=total, seen=every)
    state = read_state(rule.state_dict(), model)
    total = {name: value.double() for name, value in state.first_moment.items()}
    return Held(model=model, evidence=evidence, weights=final, total=total, state=state, seen=every)


def largest_errors(inputs: Tensor, seen: Tensor) -> Tensor:
    """Return the largest error of a pixel between each input and each seen one; infinite for features of a layer."""
    flat = inputs.flatten(1)
    rows = [(seen - one).abs().amax(dim=1) for one in flat] if len(seen) and flat.shape[1] == seen.shape[1] else []
    return torch.stack(rows) if rows else flat.new_full((len(flat), len(seen)), math.inf)


def attack(
    view: exhume.AttackerView,
    seen: Tensor,
    *,
    seed: int,
    seconds: float | None,
    by: Attack = GateCertificate(),  # noqa: B008 - frozen
    made_of: Tensor | None = None,
    features: Tensor | None = None,
) -> dict[str, Any]:
    """Attack by a certificate and compare with the inputs that were trained on.

    Refusals and exceptions are results. ``certificates`` pairs error bound and true error of every certified input;
    ``nearest`` has the error of the best candidate for each input that was trained on.

    Args:
        view: what the attacker holds.
        seen: every input that the network was trained on, flat.
        seed: of the attack.
        seconds: time limit, after which what is found so far is judged; None: no limit.
        by: the attack.
        made_of: images that inputs are mixtures or variations of, or that the evidence holds without a training. A
            certificate of one of them, ``behind``, is not false: they are in the evidence.
        features: what a layer reads of each seen input; errors of features are relative to the largest.
    """
    row: dict[str, Any] = {"rank": None, "candidates": 0, "exact": 0, "certified": 0, "false": 0, "certificates": []}
    row["behind"] = 0
    row["nearest"] = [1e300] * len(seen)
    started = time.perf_counter()
    try:
        found = by.run(view, seed=seed, device="cpu", seconds=seconds, keep_partial=True)
    except ExhumeError as reason:
        return row | {"seconds": round(time.perf_counter() - started, 2), "refused": str(reason)}
    except Exception as error:  # must never happen, so it is counted
        return row | {"seconds": round(time.perf_counter() - started, 2), "exception": repr(error)[:300]}
    errors = largest_errors(found.inputs, seen)
    if features is not None and found.inputs[:1].numel() == features.shape[1] != seen.shape[1]:
        errors = largest_errors(found.inputs, features) / float(features.abs().max())
    nearest = errors.amin(dim=1) if len(seen) else errors.new_full((len(errors),), math.inf)
    sure = found.certified.nonzero()[:, 0].tolist()
    is_wrong = nearest[sure] >= EXACT
    is_behind = torch.zeros_like(is_wrong)
    if made_of is not None and len(sure):
        is_behind = is_wrong & (largest_errors(found.inputs[sure], made_of).amin(dim=1) < EXACT)
    bounds = found.diagnostics.get("error_bounds", [0.0] * len(found))
    return row | {
        "rank": found.diagnostics.get("training_size_estimate"),
        "candidates": len(found),
        "exact": int((errors < EXACT).any(dim=0).sum()),
        "certified": len(sure),
        "false": int((is_wrong & ~is_behind).sum()),
        "behind": int(is_behind.sum()),
        "certificates": [[bounds[one], min(nearest[one].item(), 1e300)] for one in sure],
        "nearest": errors.amin(dim=0).tolist() if len(found) else row["nearest"],
        "seconds": round(found.seconds, 2),
        "is_cut": "stopped_at" in found.diagnostics,
    }


def use_one_thread() -> None:
    torch.set_num_threads(1)


def run_cases(
    measure: Callable[..., dict[str, Any]], cases: Sequence[dict[str, Any]], *, at_once: int, file: Path, resume: bool
) -> list[dict[str, Any]]:
    """Measure cases, ``at_once`` at a time with one thread each, print each row as it comes, and return all.

    Args:
        measure: takes a case as keyword arguments and returns its row; must be importable.
        cases: what to measure; each row contains its case.
        at_once: number of processes; one: this process.
        file: where each row is written as a line of JSON as soon as it is there.
        resume: keep the rows of an earlier run that are in ``file``.
    """
    rows = [json.loads(line) for line in file.read_text().splitlines()] if resume and file.exists() else []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = [row["case"] for row in rows]
    left = [case for case in cases if case not in done]
    started = time.perf_counter()
    with file.open("a") as lines:
        for number, (case, measured) in enumerate(_measure_all(measure, left, at_once), 1):
            row = {"case": case} | measured
            rows.append(row)
            lines.write(json.dumps(row) + "\n")
            lines.flush()
            shown = {name: value for name, value in measured.items() if name not in LISTS}
            took = time.perf_counter() - started
            print(f"{number}/{len(left)} {took:.0f} s {' '.join(map(str, case.values()))} {shown}", flush=True)
    return rows


def _measure_all(
    measure: Callable[..., dict[str, Any]], cases: Sequence[dict[str, Any]], at_once: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each case with its row, in the order in which they end."""
    if at_once == 1:
        threads = torch.get_num_threads()
        use_one_thread()
        try:
            yield from ((case, measure(**case)) for case in cases)
        finally:
            torch.set_num_threads(threads)
        return
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), initializer=use_one_thread) as pool:
        waiting = {pool.submit(measure, **case): case for case in cases}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def count_outcomes(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the rows of :func:`attack`."""
    return {
        "networks": len(group),
        "refused": sum("refused" in row for row in group),
        "stopped by time": sum(row.get("is_cut", False) for row in group),
        "exact": sum(row["exact"] for row in group),
        "certificates": sum(row["certified"] for row in group),
        "false": sum(row["false"] for row in group),
        "beyond the bound": sum(error > bound for row in group for bound, error in row["certificates"]),
        "exceptions": sum("exception" in row for row in group),
        "seconds": round(sum(row["seconds"] for row in group)),
    }


def write_results(file: Path, seconds: float | None, summary: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Write the rows of a run and their summary, and print the summary."""
    result = {"torch": torch.__version__, "seconds": seconds, "summary": summary, "rows": rows}
    file.write_text(json.dumps(result) + "\n")
    print_table(summary)


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """Print lines with the same names as a table."""
    print("| " + " | ".join(name.replace("_", " ") for name in lines[0]) + " |\n|" + "---|" * len(lines[0]))
    for line in lines:
        print("| " + " | ".join(str(value).replace("_", " ") for value in line.values()) + " |", flush=True)
