"""The span of features: what lies outside it, and how much of that is noise."""

import torch

from tests.inversion.test_isolation import images, span_of
from tests.inversion.trunks import function_of, plain


def test_combinations_of_features_are_inside_and_noise_is_predicted() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trunk = function_of(plain())
    inputs = images()
    exact, noisy = span_of(trunk, inputs), span_of(trunk, inputs, noise=1e-4)
    mixed = 0.3 * trunk(inputs[:1]) + 0.7 * trunk(inputs[1:2])
    assert float(exact.outside(mixed).abs().max()) < 1e-12
    assert float(exact.outside(trunk(images(1, seed=9))).abs().max()) > 1e-2
    seen, expected = noisy.outside(trunk(inputs)).std(dim=1), noisy.deviation(trunk(inputs))
    assert bool(((seen / expected - 1).abs() < 0.2).all())
