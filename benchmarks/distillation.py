"""How long a step of KIP and RKIP takes, against the same step in plain PyTorch autograd.

Both take the same kernel, the same data, one step of Adam, float32. The plain version is the textbook's: the arc-cosine
recursion with ``torch.arccos``, one graph from images to loss, ``backward`` and ``torch.optim.Adam``.

    python benchmarks/distillation.py [--out DIR] [--device cpu] [--steps 200]
"""

import argparse
import importlib.util
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

for spare in ("pooch", "jinja2"):  # measuring neither downloads nor reports, and may run where neither is installed
    if importlib.util.find_spec(spare) is None:
        sys.modules[spare] = MagicMock()

import torch  # noqa: E402

from exhume.attacks.optimisation import Descent, minimise  # noqa: E402
from exhume.distillation.kernel import KIP, RKIP, InducingPoints, KernelDistillation  # noqa: E402
from exhume.kernels import InfiniteNTK, jittered  # noqa: E402

CASES = ((20, 100, 784), (20, 500, 784), (20, 500, 3072), (100, 500, 784))
"""Distilled, training images, pixels."""
JITTER = 1e-5


def textbook_kernel(kernel: InfiniteNTK, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    size, gain = left.shape[1], float(kernel.width or 1)
    k = left @ right.T / size
    ntk = size * k + kernel.bias_gain
    p = (left**2).sum(1)[:, None] / size
    q = (right**2).sum(1)[None] / size
    for _ in range(kernel.depth):
        scale = (p * q).sqrt()
        angle = torch.arccos((k / scale).clamp(-1 + 1e-6, 1 - 1e-6))
        on = (math.pi - angle) / (2 * math.pi)
        heard = scale * (torch.sin(angle) + (math.pi - angle) * torch.cos(angle)) / (2 * math.pi)
        ntk = gain * heard + kernel.bias_gain + ntk * on
        k, p, q = heard, p / 2, q / 2
    return ntk


def textbook_steps(
    method: KernelDistillation,
    start: torch.Tensor,
    targets: torch.Tensor,
    examples: torch.Tensor,
    answers: torch.Tensor,
) -> Callable[[int], None]:
    inputs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([inputs], lr=method.learning_rate)
    with torch.no_grad():
        train = textbook_kernel(method.kernel, examples, examples).double()
        alpha = torch.linalg.solve(jittered(train, JITTER), answers.double()).float()
        constant = float((alpha.double() * (train @ alpha.double())).sum())

    def advance(steps: int) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            within = textbook_kernel(method.kernel, inputs, inputs)
            across = textbook_kernel(method.kernel, inputs, examples)
            duals = torch.linalg.solve(jittered(within, JITTER), targets)
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
    loss = method.loss(examples.double(), answers.double())
    problem = InducingPoints(kernel=method.kernel, loss=loss, examples=examples, targets=targets.double())

    def advance(steps: int) -> None:
        minimise(problem.objective, (start,), Descent(steps=steps, learning_rates=(method.learning_rate,)))

    return advance


def milliseconds(advance: Callable[[int], None], steps: int, device: str) -> float:
    """Return the best of three measurements of a step."""
    advance(10)
    best = math.inf
    for _ in range(3):
        started = time.perf_counter()
        advance(steps)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 1e3 * best / steps


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
            ours, plain = (
                milliseconds(make(method, start, targets, examples, answers), options.steps, options.device)
                for make in (our_steps, textbook_steps)
            )
            row = {
                "method": type(method).__name__, "distilled": distilled, "training": size, "pixels": pixels,
                "milliseconds": ours, "plain_autograd_milliseconds": plain, "ratio": plain / ours,
            }  # fmt: skip
            rows.append(row)
            print(
                f"{row['method']:5} {size:4} -> {distilled:3} of {pixels:4} pixels  {ours:7.2f} ms a step, "
                f"plain autograd {plain:7.2f} ms: {row['ratio']:.1f} times",
                flush=True,
            )
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    account = {"machine": machine, "threads": torch.get_num_threads(), "torch": torch.__version__, "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "distillation.json").write_text(json.dumps(account, indent=2))


if __name__ == "__main__":
    main()
