"""Where an input is missing: the value of a place against its definition, and its maximum at the missing input."""

import torch

from exhume.attacks.infinite_width.missing import Missing, find_missing_input
from tests.attacks.infinite_width.kernel_networks import KERNEL, pose_embedding


def test_a_missing_image_is_found_however_little_it_contributes():
    images, network, problem = pose_embedding(16, seed=1)
    shares = network.duals[:, 0].square() / torch.linalg.inv(KERNEL(images)).diagonal()
    weakest = int(shares.argmin())
    assert shares[weakest] < 1e-7 * network.squared_norm
    others = torch.cat([images[:weakest], images[weakest + 1 :]])
    place, explained = find_missing_input(
        problem, others, starts=16, steps=200, generator=torch.Generator().manual_seed(0)
    )
    assert torch.nn.functional.cosine_similarity(place, images[[weakest]]) > 0.999
    assert abs(explained / shares[weakest] - 1) < 0.01


def test_the_value_of_a_place_and_its_gradient():
    images, network, problem = pose_embedding(6)
    missing = Missing(problem=problem, free=images[:4], radius=problem.radius)
    generator = torch.Generator().manual_seed(0)
    place, step = (torch.randn(1, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    explained, slope = missing.explained_at(place)
    candidates = torch.cat([images[:4], problem.inputs(place)])
    with_it, without = (
        (outputs * torch.linalg.solve(KERNEL(there), outputs)).sum()
        for there in (candidates, images[:4])
        for outputs in (network(there),)
    )
    assert torch.allclose(explained, with_it - without, rtol=1e-6)
    ahead, behind = (missing.explained_at(place + sign * 1e-6 * step)[0].log() for sign in (1, -1))
    assert torch.allclose((ahead - behind) / 2, 1e-6 * (slope * step).sum(), rtol=1e-4)
