"""Measure how the empirical tangent kernel converges to the analytic one with width, and the cost of the latter.

PYTHONPATH=src python benchmarks/kernels.py [--out DIR] [--widths 64,256,1024,4096] [--draws 8]
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch

import exhume
from exhume.kernels import InfiniteNTK, empirical_ntk


def deviation(width: int, draws: int, inputs: torch.Tensor) -> float:
    """Return the root mean square of ‖K_empirical − K_analytic‖/‖K_analytic‖ over networks."""
    model = exhume.MLP(width=width, depth=2)
    analytic = InfiniteNTK.of(model)(inputs)
    squares = []
    for seed in range(draws):
        network = model.build(tuple(inputs.shape[1:]), 1, torch.Generator().manual_seed(seed)).double()
        weights = {name: weight.detach() for name, weight in network.state_dict().items()}
        squares.append(float(((empirical_ntk(network, weights, inputs) - analytic).norm() / analytic.norm()) ** 2))
    return math.sqrt(sum(squares) / draws)


def seconds_of_kernel(count: int, pixels: int) -> tuple[float, float]:
    """Return the seconds for a kernel matrix, and for the matrix with its gradient with respect to one side."""
    left, right = (torch.randn(count, pixels, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    started = time.perf_counter()
    table = InfiniteNTK()(left, right)
    alone = time.perf_counter() - started
    started = time.perf_counter()
    InfiniteNTK().with_vjp(left, right)[1](table)
    return alone, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--widths", default="64,256,1024,4096")
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    data = exhume.load("digits", classes="odd-even", size=20, test=0)
    inputs = data.to_model(data.train.inputs).flatten(1).double()
    rows = []
    for width in map(int, options.widths.split(",")):
        error = deviation(width, options.draws, inputs)
        rows.append({"width": width, "deviation": error, "times_root_width": error * math.sqrt(width)})
        print(f"width {width:5}: deviation {error:.4f}, times √width {error * math.sqrt(width):.2f}", flush=True)
    costs = []
    for count, pixels in ((500, 784), (1000, 3072)):
        alone, both = seconds_of_kernel(count, pixels)
        costs.append({"inputs": count, "pixels": pixels, "seconds": alone, "with_gradient": both})
        print(f"{count} x {count} inputs of {pixels}: {alone:.3f} s, with gradient {both:.3f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"torch": torch.__version__, "threads": torch.get_num_threads(), "widths": rows, "costs": costs}
    (options.out / "kernels.json").write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
