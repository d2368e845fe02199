"""Measure how many training images the attack on infinite width recovers with one candidate per image.

Theorem 1 of Loo et al. (2023): the network is kernel regression and can only be queried. All images have one norm.

    PYTHONPATH=src python benchmarks/infinite_width.py [--out DIR] [--cases digits-16,mnist-20] [--seeds 3]
"""

import argparse
import json
import time
from pathlib import Path

import torch

from exhume import load
from exhume.attacks.infinite_width.embedding import Embedding
from exhume.attacks.infinite_width.rounds import Rounds, match_embedding
from exhume.evaluation.distances import squared_distances
from exhume.evaluation.matching import match
from exhume.kernels import InfiniteNTK, KernelRegression

RECOVERED = 1e-3
"""Mean squared error per pixel below which an image counts as recovered."""


def measure(source: str, size: int, seed: int) -> dict[str, object]:
    data = load(source, classes="odd-even", size=size, seed=seed, test=0)
    flat = data.to_model(data.train.inputs).flatten(1).double()
    radius = float(flat.norm(dim=1).mean())
    images = radius * flat / flat.norm(dim=1, keepdim=True)
    network = KernelRegression.fit(InfiniteNTK(), images, 2.0 * data.train.labels[:, None].double() - 1.0, jitter=0.0)
    shares = network.duals[:, 0].square() / torch.linalg.inv(network.kernel(images)).diagonal() / network.squared_norm
    generator = torch.Generator().manual_seed(seed)
    start = (
        0.2 * torch.randn(size, flat.shape[1], generator=generator).double(),
        torch.rand(size, 1, generator=generator).double() - 0.5,
    )
    began = time.perf_counter()
    problem = Embedding.of(network.kernel, network.with_vjp, start[0], radius)
    end = match_embedding(problem, start, Rounds(), generator=generator)
    seconds = time.perf_counter() - began
    distances = squared_distances(problem.inputs(end.variables[0]), images) / flat.shape[1]
    pairs = match(distances)
    errors = distances[pairs[:, 0], pairs[:, 1]]
    return {
        "source": source, "size": size, "seed": seed, "recovered": int((errors < RECOVERED).sum()),
        "largest_error": float(errors.max()), "median_error": float(errors.median()),
        "least_share": float(shares.min()), "unexplained": end.value / network.squared_norm + 1.0, "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cases", default="digits-16,digits-20,digits-30,mnist-20")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for case in options.cases.split(","):
        source, size = case.rsplit("-", 1)
        for seed in range(options.seeds):
            row = measure(source, int(size), seed)
            rows.append(row)
            print(
                f"{case} seed {seed}: {row['recovered']} of {size}, largest error {row['largest_error']:.1e}, least "
                f"share of an image in the squared norm {row['least_share']:.1e}, {row['seconds']:.1f} s",
                flush=True,
            )
    result = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "infinite_width.json").write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
