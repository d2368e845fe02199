"""Rounds: all training images are recovered and no held-out image, and redundant candidates move to missing inputs."""

import os

import pytest
import torch

from exhume.attacks.infinite_width.rounds import Rounds, relocate_candidates
from exhume.kernels import KernelRegression
from tests.attacks.infinite_width.kernel_networks import (
    KERNEL,
    match_network,
    matched_errors,
    on_a_sphere,
    pose_embedding,
)


@pytest.mark.parametrize(
    ("source", "size", "seed"),
    [
        ("digits", 8, 0),
        pytest.param(
            "mnist",
            4,
            0,
            marks=pytest.mark.skipif("EXHUME_DATA" not in os.environ, reason="MNIST is read from EXHUME_DATA"),
        ),
    ],
)
def test_as_many_candidates_as_images_recover_every_image(source, size, seed):
    images, targets, radius = on_a_sphere(source, size, seed)
    network = KernelRegression.fit(KERNEL, images, targets, jitter=0.0)
    found, end = match_network(network, size, radius, seed, rounds=8, starts=12, climbing_steps=100)
    assert end.value + network.squared_norm <= 1e-6 * network.squared_norm
    assert matched_errors(found, images).max() < 1e-3


def test_held_out_images_are_not_recovered():
    images, targets, radius = on_a_sphere("digits", 12)
    held_out = on_a_sphere("digits", 24)[0][12:]
    found, _ = match_network(KernelRegression.fit(KERNEL, images, targets, jitter=0.0), 12, radius, rounds=1)
    assert matched_errors(found, held_out).median() > 0.05


def test_one_of_two_candidates_in_a_place_moves_to_the_missing_input():
    images, network, problem = pose_embedding(6)
    twins = torch.cat([images[:5], images[:1]])
    half = torch.cat([network.duals[:5], network.duals[:1]]).clone()
    half[[0, 5]] /= 2
    settings = Rounds(climbing_steps=300)
    (free, raw), missing = relocate_candidates(problem, (twins, half), settings, torch.Generator().manual_seed(0))
    assert 0 < missing < 1
    assert torch.nn.functional.cosine_similarity(free[5], images[5], dim=0) > 0.999
    assert torch.allclose(raw[:, 0].sort().values, network.duals[:, 0].sort().values, rtol=0.05)


def test_nothing_moves_where_nothing_is_missing():
    images, network, problem = pose_embedding(6)
    assert relocate_candidates(problem, (images, network.duals), Rounds(), torch.Generator().manual_seed(0)) is None
