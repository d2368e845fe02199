"""Arrangements of edges that the tests of meeting points share."""

from dataclasses import replace

import torch

from exhume.attacks.stationarity.edges import Edges
from exhume.attacks.stationarity.meeting_points import InputRange


def first_layer_edges(normals, offsets):
    """Return edges of one layer with these normals and offsets."""
    return Edges((normals,), (offsets,), (torch.ones(len(normals), dtype=torch.bool),))


def alternate(one, other):
    """Return the edges of one layer that are alternately those of one arrangement and of another."""
    normals, offsets = (
        torch.stack([getattr(edges, name)[0] for edges in (one, other)], 1).flatten(0, 1)
        for name in ("weights", "biases")
    )
    return first_layer_edges(normals, offsets)


def in_two_layers(edges):
    """Return the edges of one layer as those of two: every other one belongs to units of a second layer.

    Units of the first layer that are not counted pass every coordinate on, once for each sign.
    """
    normals, offsets = edges.weights[0], edges.biases[0]
    identity = torch.eye(normals.shape[1], dtype=normals.dtype)
    first = torch.cat([normals[::2], identity, -identity])
    upper = torch.cat([torch.zeros(len(normals[1::2]), len(normals[::2])), normals[1::2], -normals[1::2]], 1)
    counted = torch.arange(len(first)) < len(normals[::2])
    return Edges(
        (first, upper),
        (torch.cat([offsets[::2], torch.zeros(2 * len(identity))]), offsets[1::2]),
        (counted, torch.ones(len(upper), dtype=torch.bool)),
    )


def random_edges(points, each, others, generator):
    """Return ``each`` edges through every point, and ``others`` through none."""
    dimension = points.shape[1]
    normals = torch.randn(each * len(points) + others, dimension, generator=generator, dtype=torch.float64)
    normals = normals / normals.norm(dim=1, keepdim=True)
    offsets = torch.randn(len(normals), generator=generator, dtype=torch.float64)
    through = normals[: each * len(points)]
    offsets[: len(through)] = -(through * points.repeat_interleave(each, 0)).sum(1)
    return first_layer_edges(normals, offsets)


def shuffle_offsets(edges, seed):
    """Return edges of the same directions in the first layer that meet only by chance."""
    lengths = edges.weights[0].norm(dim=1).clamp(min=1e-300)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    return replace(edges, biases=((edges.biases[0] / lengths)[order] * lengths, *edges.biases[1:]))


def free_range(dimension, size=torch.inf):
    """Return a range in which every coordinate is a value between −size and size."""
    ends = torch.full((dimension,), float(size), dtype=torch.float64)
    return InputRange(torch.eye(dimension, dtype=torch.float64), torch.zeros_like(ends), -ends, ends)


def normal_draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
