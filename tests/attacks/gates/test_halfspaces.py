"""Halfspaces: an input is found from its on/off pattern, and products of many matrices from parts."""

import torch

from exhume.attacks.gates import halfspaces
from exhume.attacks.gates.halfspaces import fit_halfspaces, weighted_gram


def test_a_halfspace_is_fitted_to_the_pattern_it_made():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 300, 8, generator=generator, dtype=torch.float64)
    features[1] = features[0] + 0.01 * features[1]  # after training, near the start
    truth = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    on = ((truth @ features[0].T > 0) | (truth @ features[1].T > 0)).double()
    codes = fit_halfspaces(features.flatten(0, 1), on, torch.zeros_like(truth), 0.03, steps=20)
    assert float(torch.cosine_similarity(codes, truth).min()) > 0.99


def test_weighted_products_in_parts_equal_the_whole(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    weights = torch.rand(5, 7, generator=generator, dtype=torch.float64)
    expected = torch.stack([vectors @ weight.diag() @ vectors.T for weight in weights])
    torch.testing.assert_close(weighted_gram(vectors, weights), expected)
    monkeypatch.setattr(halfspaces, "numbers_at_once", lambda _: 2 * vectors.numel())
    torch.testing.assert_close(weighted_gram(vectors, weights), expected)
    assert weighted_gram(vectors, weights[:0]).shape == (0, 3, 3)
