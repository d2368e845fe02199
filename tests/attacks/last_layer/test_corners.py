"""Extreme points of non-negative combinations."""

import torch

from exhume.attacks.last_layer.corners import find_corners


def span_of(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return orthonormal rows that span features and their constant."""
    known = torch.cat([features, torch.ones(len(features), 1).to(features)], dim=1)
    rows = torch.linalg.svd(known, full_matrices=False)[2]
    return rows, known


def test_sparse_features_are_the_corners() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 300, generator=generator, dtype=torch.float64).clamp(min=0)
    rows, known = span_of(features)
    corners = find_corners(rows[:, :-1], rows[:, -1], generator) @ rows
    assert len(corners) == 5
    assert float(torch.cdist(corners, known).amin(dim=1).max()) < 1e-6


def test_features_without_zeros_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    features = 1 + torch.rand(4, 100, generator=generator, dtype=torch.float64)
    rows, known = span_of(features)
    corners = find_corners(rows[:, :-1], rows[:, -1], generator) @ rows
    assert len(corners) == 0 or float(torch.cdist(corners, known).amin(dim=1).min()) > 0.1
