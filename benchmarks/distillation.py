"""Compare the time of a step of KIP and RKIP with the same step in plain PyTorch autograd.

All use the same kernel, the same data, one step of Adam, and float32. The plain version is that of a textbook: the
arc-cosine recursion with ``torch.arccos``, one graph from images to loss, ``backward`` and ``torch.optim.Adam``;
everything constant is computed once. For RKIP the released code of Loo et al. (2023) recomputes the kernel and the
duals of the training set at each step; a second baseline does so too. Two more rows give a step in the span of the
data, and the two matrix products between images that every step needs.

    PYTHONPATH=src python benchmarks/distillation.py [--out DIR] [--device cpu] [--steps 200]
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numerical_only  # noqa: F401 # before exhume
import torch

from exhume.distillation.inducing_points import InducingPoints, span_axes
from exhume.distillation.kip import KIP, RKIP, KernelDistillation
from exhume.kernels import InfiniteNTK, add_jitter
from exhume.optimise import Adam, minimise

CASES = ((20, 100, 784), (20, 500, 784), (20, 500, 3072), (100, 500, 784))
"""Number of distilled images, of training images, and of pixels."""
JITTER = 1e-5


def textbook_kernel(kernel: InfiniteNTK, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the tangent kernel by the arc-cosine recursion."""
    size, gain = left.shape[1], float(kernel.width or 1)
    k = left @ right.T / size
    ntk = size * k + kernel.bias_gain
    p = (left**2).sum(1)[:, None] / size
    q = (right**2).sum(1)[None] / size
    for _ in range(kernel.depth):
        scale = (p * q).sqrt()
        angle = torch.arccos((k / scale).clamp(-1 + 1e-6, 1 - 1e-6))
        on = (math.pi - angle) / (2 * math.pi)
        activation = scale * (torch.sin(angle) + (math.pi - angle) * torch.cos(angle)) / (2 * math.pi)
        ntk = gain * activation + kernel.bias_gain + ntk * on
        k, p, q = activation, p / 2, q / 2
    return ntk


def textbook_steps(
    method: KernelDistillation,
    start: torch.Tensor,
    targets: torch.Tensor,
    examples: torch.Tensor,
    answers: torch.Tensor,
    *,
    as_released: bool = False,
) -> Callable[[int], None]:
    """Return a function that takes steps by autograd."""
    inputs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([inputs], lr=method.learning_rate)

    def solve_training_set() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            train = textbook_kernel(method.kernel, examples, examples)
            alpha = torch.linalg.solve(add_jitter(train, JITTER), answers)
            return alpha, (alpha * (train @ alpha)).sum()

    alpha, constant = solve_training_set()

    def advance(steps: int) -> None:
        nonlocal alpha, constant
        for _ in range(steps):
            optimiser.zero_grad()
            if as_released:
                alpha, constant = solve_training_set()
            within = textbook_kernel(method.kernel, inputs, inputs)
            across = textbook_kernel(method.kernel, inputs, examples)
            duals = torch.linalg.solve(add_jitter(within, JITTER), targets)
            if isinstance(method, KIP):
                loss = 0.5 * (answers - across.T @ duals).square().mean()
            else:
                loss = 0.5 * ((duals * (within @ duals)).sum() - 2 * (alpha * (across.T @ duals)).sum() + constant)
            loss.backward()
            optimiser.step()

    return advance


def our_steps(
    method: KernelDistillation,
    start: torch.Tensor,
    targets: torch.Tensor,
    examples: torch.Tensor,
    answers: torch.Tensor,
) -> Callable[[int], None]:
    """Return a function that takes steps of our distillation."""
    loss = method.loss(examples.double(), answers.double())
    basis = None if method.coordinates == "values" else span_axes(torch.cat([examples, start]))
    examples, coordinates = (x if basis is None else x @ basis.T for x in (examples, start))
    problem = InducingPoints(
        kernel=method.kernel, loss=loss, examples=examples, targets=targets.double(), size=start.shape[1]
    )

    def advance(steps: int) -> None:
        minimise(problem.objective, (coordinates,), Adam(steps=steps, learning_rates=(method.learning_rate,)))

    return advance


def products_alone(start: torch.Tensor, examples: torch.Tensor) -> Callable[[int], None]:
    """Return a function that takes the matrix products of a step and nothing else."""
    images = torch.cat([start, examples])

    def advance(steps: int) -> None:
        for _ in range(steps):
            table = start @ images.T
            table @ images

    return advance


def milliseconds(advances: Mapping[str, Callable[[int], None]], steps: int, device: str) -> dict[str, float]:
    """Return the best of seven measurements of a step, taken in turn, so that load slows all alike."""
    best = dict.fromkeys(advances, math.inf)
    for advance in advances.values():
        advance(10)
    for _ in range(7):
        for name, advance in advances.items():
            started = time.perf_counter()
            advance(steps)
            if device == "cuda":
                torch.cuda.synchronize()
            best[name] = min(best[name], time.perf_counter() - started)
    return {name: 1e3 * seconds / steps for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    rows = []
    for distilled, size, pixels in CASES:
        generator = torch.Generator().manual_seed(0)
        examples = torch.rand(size, pixels, generator=generator).sub(0.3).to(options.device)
        answers = torch.randn(size, 1, generator=generator).sign().to(options.device)
        start = (0.2 * torch.randn(distilled, pixels, generator=generator)).to(options.device)
        targets = (2.0 * (torch.arange(distilled) % 2)[:, None] - 1.0).to(options.device)
        for method in (KIP(), RKIP()):
            task = (start, targets, examples, answers)
            advances = {
                "ours": our_steps(method, *task),
                "ours_in_span": our_steps(replace(method, coordinates="span"), *task),
                "plain": textbook_steps(method, *task),
                "products_alone": products_alone(start, examples),
            }
            if isinstance(method, RKIP):
                advances["as_released"] = textbook_steps(method, *task, as_released=True)
            took = milliseconds(advances, options.steps, options.device)
            ratios = {
                f"{theirs}_over_{ours}": took[theirs] / took[ours]
                for theirs in ("plain", "as_released")
                for ours in ("ours", "ours_in_span")
                if theirs in took
            }
            name = type(method).__name__
            rows.append(
                {"method": name, "distilled": distilled, "training": size, "pixels": pixels}
                | {"milliseconds": took, "ratios": ratios}
            )
            print(
                f"{name:5} {size:4} -> {distilled:3} of {pixels:4} pixels, milliseconds per step: ",
                ", ".join(f"{name} {time:.2f}" for name, time in took.items()),
                "; ",
                ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items()),
                sep="",
                flush=True,
            )
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    result = {"machine": machine, "threads": torch.get_num_threads(), "torch": torch.__version__, "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "distillation.json").write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
