"""Infinitely wide networks, trained in closed form on digits on a sphere."""

import functools

import torch

from exhume import load
from exhume.attacks.infinite_width.embedding import Embedding
from exhume.attacks.infinite_width.rounds import Rounds, match_embedding
from exhume.evaluation.distances import squared_distances
from exhume.evaluation.matching import match
from exhume.kernels import InfiniteNTK, KernelRegression

KERNEL = InfiniteNTK(depth=2)


def on_a_sphere(source, size, seed=0):
    data = load(source, classes="odd-even", size=size, seed=seed, test=0)
    flat = data.to_model(data.train.inputs).flatten(1).double()
    radius = float(flat.norm(dim=1).mean())
    return radius * flat / flat.norm(dim=1, keepdim=True), 2.0 * data.train.labels[:, None].double() - 1.0, radius


def match_network(network, candidates, radius, seed=0, **rounds):
    generator = torch.Generator().manual_seed(seed)
    size = network.inputs.shape[1]
    start = (
        0.2 * torch.randn(candidates, size, generator=generator).double(),
        (torch.rand(candidates, network.duals.shape[1], generator=generator) - 0.5).double(),
    )
    problem = Embedding.of(network.kernel, network.with_vjp, start[0], radius)
    end = match_embedding(problem, start, Rounds(**rounds), generator=generator)
    return problem.inputs(end.variables[0]), end


def matched_errors(found, images):
    distances = squared_distances(found, images) / images.shape[1]
    pairs = match(distances)
    return distances[pairs[:, 0], pairs[:, 1]]


@functools.cache
def pose_embedding(size, seed=0):
    images, targets, radius = on_a_sphere("digits", size, seed)
    network = KernelRegression.fit(KERNEL, images, targets, jitter=0.0)
    return images, network, Embedding(kernel=KERNEL, answers=network.with_vjp, radius=radius)
