"""Row problems of images with a dark background, without any training."""

import torch

from exhume.attacks.gates.problem import RowProblem


def dark_images(count, values=300, lit=0.25, seed=0):
    """Return 8-bit images of which most values are 0."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(1, 256, (count, values), generator=generator).double() / 255
    return levels * (torch.rand(count, values, generator=generator) < lit)


def pose(images, units=120, seed=0):
    """Return the row problem of one gradient with random signals, and the inputs in coordinates of its basis."""
    generator = torch.Generator().manual_seed(seed + 1)
    inputs = torch.cat([images, torch.ones_like(images[:, :1])], dim=1)
    weights = torch.randn(units, inputs.shape[1], generator=generator, dtype=torch.float64)
    weights[:, -1] = 0
    signals = torch.randn(len(images), units, generator=generator, dtype=torch.float64)
    effects = signals * (inputs @ weights.T > 0)
    left, strengths, right = torch.linalg.svd(inputs.T @ effects, full_matrices=False)
    basis, strengths, rows = left[:, : len(images)], strengths[: len(images)], right[: len(images)]
    problem = RowProblem(
        rows=rows,
        basis=basis,
        strengths=strengths,
        before=weights,
        after=weights,
        informative=(effects != 0).any(dim=0).double(),
        noise=1e-12,
        has_bias=True,
        gates_are_exact=True,
        ends=torch.cat([basis[:-1], basis[-1] - basis[:-1]]),
        signals=(),
    )
    return problem, inputs @ basis


def true_rows(problem, codes):
    """Return the rows of all inputs, in coordinates of the row space."""
    rows = torch.linalg.inv(codes / problem.strengths).T
    return rows / rows.norm(dim=1, keepdim=True)
