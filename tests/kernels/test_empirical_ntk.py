"""The empirical kernel: closed form against autograd, and its limit as the width grows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.kernels import empirical_ntk, kernel_distance
from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.models.tangent import kernel_blocks


def built(architecture, outputs=2, seed=0):
    model = architecture.build((1, 8, 8), outputs, torch.Generator().manual_seed(seed)).double()
    return model, {name: weight.detach() for name, weight in model.state_dict().items()}


def images(count, seed=0):
    return torch.randn(count, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "architecture",
    [
        MLP(width=7, depth=1),
        MLP(width=7, depth=3, activation="tanh", parameterisation="ntk"),
        MLP(width=7, depth=2, bias="first"),
        MLP(depth=0),
        ConvNet(channels=3, depth=1),
    ],
)
def test_kernel_equals_the_pairwise_loop_of_gradients(architecture):
    model, weights = built(architecture)
    left, right = images(3), images(2, seed=1)

    def gradients(inputs):
        return [
            [
                torch.cat([g.flatten() for g in torch.autograd.grad(model(one[None])[0, c], model.parameters())])
                for c in (0, 1)
            ]
            for one in inputs
        ]

    expected = torch.tensor(
        [[sum(float(a[c] @ b[c]) for c in (0, 1)) for b in gradients(right)] for a in gradients(left)],
        dtype=torch.float64,
    )
    kernel = empirical_ntk(model, weights, left, right)
    assert torch.allclose(kernel, expected, atol=1e-10)
    assert torch.allclose(kernel, torch.einsum("icjc->ij", kernel_blocks(model, weights, left, right)), atol=1e-10)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), depth=st.integers(0, 3), count=st.integers(1, 6))
def test_kernel_is_symmetric_and_positive(seed, depth, count):
    model, weights = built(MLP(width=5, depth=depth), seed=seed)
    kernel = empirical_ntk(model, weights, images(count, seed))
    assert torch.allclose(kernel, kernel.T, atol=1e-10)
    assert torch.linalg.eigvalsh(kernel)[0] > -1e-9 * kernel.diagonal().max()


def test_kernel_tends_to_a_limit_like_one_over_the_root_of_the_width():
    left = images(3)

    def relative_deviation(width):
        draws = torch.stack(
            [empirical_ntk(*built(MLP(width=width, parameterisation="ntk"), 1, seed), left) for seed in range(40)]
        )
        return (draws.std(0) / draws.mean(0).abs().mean()).mean().item()

    assert relative_deviation(256) / relative_deviation(64) == pytest.approx(0.5, rel=0.25)


def test_distance_depends_on_direction_and_not_on_size():
    generator = torch.Generator().manual_seed(0)
    kernel = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    assert kernel_distance(kernel, 7.0 * kernel).item() == pytest.approx(0.0, abs=1e-12)
    assert kernel_distance(kernel, -kernel).item() == pytest.approx(2.0)
    one, other = torch.zeros(2, 2), torch.zeros(2, 2)
    one[0, 0], other[1, 1] = 1.0, 1.0
    assert kernel_distance(one, other).item() == 1.0
