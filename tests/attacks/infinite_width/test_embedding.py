"""The embedding: its objective is a distance of functions, and its gradients are finite differences."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.attacks.infinite_width.embedding import Embedding, project_to_sphere, pull_from_sphere
from exhume.kernels import KernelRegression
from tests.attacks.infinite_width.kernel_networks import KERNEL, pose_embedding


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), radius=st.sampled_from([None, 3.0]), outputs=st.integers(1, 2))
def test_the_objective_is_a_distance_of_functions_and_has_its_gradients(seed, radius, outputs):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    network = KernelRegression.fit(KERNEL, draw(5, 6), draw(5, outputs), jitter=0.0)
    problem = Embedding(kernel=KERNEL, answers=network.with_vjp, radius=radius, dual_unit=1e-3)
    free, raw = draw(4, 6), draw(4, outputs)
    value, (by_free, by_raw) = problem.objective((free, raw), torch.zeros(()))
    inputs, duals = problem.inputs(free), 1e-3 * raw
    union, signed = torch.cat([network.inputs, inputs]), torch.cat([network.duals, -duals])
    distance = (signed * (KERNEL(union) @ signed)).sum()  # ‖Σ α_i k(x_i, ·) − Σ α_j k(x_j, ·)‖²
    assert torch.allclose(value + network.squared_norm, distance, atol=1e-8 * network.squared_norm)
    step = 1e-6 * draw(4, 6), 1e-6 * draw(4, outputs)
    ahead, behind = (
        problem.objective((free + sign * step[0], raw + sign * step[1]), torch.zeros(()))[0] for sign in (1, -1)
    )
    expected = (by_free * step[0]).sum() + (by_raw * step[1]).sum()
    assert torch.allclose((ahead - behind) / 2, expected, rtol=1e-4, atol=1e-12)


def test_the_best_duals_of_the_training_inputs_are_those_of_the_network():
    images, network, problem = pose_embedding(6)
    torch.testing.assert_close(problem.dual_unit * problem.best_duals(images), network.duals, rtol=1e-6, atol=0)


def test_gradients_are_pulled_from_the_sphere():
    generator = torch.Generator().manual_seed(0)
    free, cotangent = (torch.randn(3, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    slow = torch.func.grad(lambda at: (project_to_sphere(at, 2.0) * cotangent).sum())(free)
    torch.testing.assert_close(pull_from_sphere(cotangent, free, 2.0), slow)
    torch.testing.assert_close(project_to_sphere(free, 2.0).norm(dim=1), torch.full((3,), 2.0, dtype=torch.float64))
