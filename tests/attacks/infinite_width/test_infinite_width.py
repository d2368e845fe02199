"""Theorem 1 of Loo et al. (2023): an infinitely wide network that can only be asked gives away its training set."""

import os
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume import MLP, ConvNet, Refusal, load, train
from exhume.attacks.infinite_width.answers import change_of_outputs
from exhume.attacks.infinite_width.embedding import Embedding
from exhume.attacks.infinite_width.infinite_width import InfiniteWidth
from exhume.attacks.infinite_width.missing import Missing, find_missing_input
from exhume.attacks.infinite_width.rounds import Rounds, match_embedding, relocate_candidates
from exhume.core.errors import ExhumeError
from exhume.evaluation.distances import squared_distances
from exhume.evaluation.matching import match
from exhume.kernels import InfiniteNTK, KernelRegression

KERNEL = InfiniteNTK(depth=2)


def on_a_sphere(source, size, seed=0):
    data = load(source, classes="odd-even", size=size, seed=seed, test=0)
    flat = data.to_model(data.train.inputs).flatten(1).double()
    radius = float(flat.norm(dim=1).mean())
    return radius * flat / flat.norm(dim=1, keepdim=True), 2.0 * data.train.labels[:, None].double() - 1.0, radius


def attack(network, candidates, radius, seed=0, **rounds):
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


# Sets with an image that makes up less than a millionth of what was learned (16 digits, 20 of MNIST), and without.
@pytest.mark.parametrize(
    ("source", "size", "seed"),
    [
        ("digits", 16, 1),
        pytest.param(
            "mnist",
            10,
            0,
            marks=pytest.mark.skipif("EXHUME_DATA" not in os.environ, reason="MNIST is read from EXHUME_DATA"),
        ),
    ],
)
def test_as_many_candidates_as_images_recover_every_image(source, size, seed):
    images, targets, radius = on_a_sphere(source, size, seed)
    network = KernelRegression.fit(KERNEL, images, targets, jitter=0.0)
    found, end = attack(network, size, radius, seed)
    assert end.value + network.squared_norm <= 3e-8 * network.squared_norm
    assert matched_errors(found, images).max() < 1e-3


def test_images_nobody_trained_on_are_not_recovered():
    images, targets, radius = on_a_sphere("digits", 12)
    strangers = on_a_sphere("digits", 24)[0][12:]
    found, _ = attack(KernelRegression.fit(KERNEL, images, targets, jitter=0.0), 12, radius, rounds=1)
    assert matched_errors(found, strangers).median() > 0.05


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), radius=st.sampled_from([None, 3.0]), outputs=st.integers(1, 2))
def test_gradients_and_the_meaning_of_the_objective(seed, radius, outputs):
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


def posed(size, seed=0):
    images, targets, radius = on_a_sphere("digits", size, seed)
    network = KernelRegression.fit(KERNEL, images, targets, jitter=0.0)
    return images, network, Embedding(kernel=KERNEL, answers=network.with_vjp, radius=radius)


def test_a_missing_image_is_found_however_little_it_says():
    images, network, problem = posed(16, seed=1)
    shares = network.duals[:, 0].square() / torch.linalg.inv(KERNEL(images)).diagonal()
    weakest = int(shares.argmin())
    assert shares[weakest] < 1e-7 * network.squared_norm
    others = torch.cat([images[:weakest], images[weakest + 1 :]])
    place, explained = find_missing_input(
        problem, others, starts=16, steps=200, generator=torch.Generator().manual_seed(0)
    )
    assert torch.nn.functional.cosine_similarity(place, images[[weakest]]) > 0.999
    assert abs(explained / shares[weakest] - 1) < 0.01


def test_what_a_place_would_explain_and_its_slope():
    images, network, problem = posed(6)
    missing = Missing(problem=problem, free=images[:4], radius=problem.radius)
    generator = torch.Generator().manual_seed(0)
    place, step = (torch.randn(1, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    explained, slope = missing.explained_at(place)
    candidates = torch.cat([images[:4], problem.inputs(place)])
    with_it, without = (
        (said * torch.linalg.solve(KERNEL(there), said)).sum()
        for there in (candidates, images[:4])
        for said in (network(there),)
    )
    assert torch.allclose(explained, with_it - without, rtol=1e-6)
    ahead, behind = (missing.explained_at(place + sign * 1e-6 * step)[0].log() for sign in (1, -1))
    assert torch.allclose((ahead - behind) / 2, 1e-6 * (slope * step).sum(), rtol=1e-4)


def test_one_of_two_candidates_in_a_place_moves_to_what_is_missing():
    images, network, problem = posed(6)
    twins = torch.cat([images[:5], images[:1]])
    half = torch.cat([network.duals[:5], network.duals[:1]]).clone()
    half[[0, 5]] /= 2
    settings = Rounds(climbing_steps=300)
    (free, raw), missing = relocate_candidates(problem, (twins, half), settings, torch.Generator().manual_seed(0))
    assert 0 < missing < 1
    assert torch.nn.functional.cosine_similarity(free[5], images[5], dim=0) > 0.999
    assert torch.allclose(raw[:, 0].sort().values, network.duals[:, 0].sort().values, rtol=0.05)


def test_nothing_moves_where_nothing_is_missing():
    images, network, problem = posed(6)
    assert relocate_candidates(problem, (images, network.duals), Rounds(), torch.Generator().manual_seed(0)) is None


def test_a_wide_network_that_can_only_be_asked_gives_images_away():
    data = load("digits", classes="odd-even", size=4, seed=0)
    victim = train(data, model=MLP(width=2048, depth=1), linearised=True, device="cpu")
    found = InfiniteWidth(candidates=4, rounds=2, steps=150, learning_rate=0.05).run(victim.view(), device="cpu")
    assert found.inputs.shape == (4, 1, 8, 8)
    assert found.diagnostics["explained"] > 0
    # Compared up to their length, which the kernel of a network with few biases hardly tells.
    directions, trained, strange = (
        torch.nn.functional.normalize(data.to_model(inputs).flatten(1), dim=1)
        for inputs in (found.inputs, data.train.inputs, data.holdout.inputs)
    )
    near, far = ((directions @ others.T).amax(0).mean() for others in (trained, strange))
    assert near > 0.75
    assert near > far + 0.15


def test_the_same_seed_finds_the_same():
    data = load("digits", classes="odd-even", size=4, seed=0)
    view = train(data, model=MLP(width=64, depth=1), linearised=True, device="cpu").view()
    first, second = (InfiniteWidth(candidates=4, rounds=2, steps=10).run(view, device="cpu") for _ in range(2))
    assert torch.equal(first.inputs, second.inputs)


def test_what_training_taught_is_asked_alike_for_both_dynamics():
    data = load("digits", classes="odd-even", size=6, seed=0)
    inputs = data.to_model(data.train.inputs).flatten(1)
    targets = 2.0 * data.train.labels[:, None] - 1.0
    for linearised in (True, False):
        victim = train(data, model=MLP(width=256), linearised=linearised, device="cpu")
        view = victim.view()
        said, pull = change_of_outputs(view)(inputs)
        start = view.module(view.initial)(data.to_model(data.train.inputs))
        assert torch.allclose(said, targets - start, atol=1e-2)
        assert pull(said).shape == inputs.shape


def test_other_networks_are_refused():
    data = load("digits", classes="odd-even", size=4)
    view = train(data, model=ConvNet(channels=2, depth=1), steps=1, device="cpu").view()
    with pytest.raises(Refusal, match="architecture of an MLP"):
        InfiniteWidth(candidates=4).run(view)
    smooth = train(data, model=MLP(width=8, activation="tanh"), steps=1, device="cpu").view()
    with pytest.raises(Refusal, match="ReLU"):
        InfiniteWidth(candidates=4).run(smooth)
    good = train(data, model=MLP(width=8), steps=1, device="cpu").view()
    with pytest.raises(Refusal, match="no initial weights"):
        InfiniteWidth(candidates=4).run(replace(good, initial=None))
    with pytest.raises(Refusal, match="nothing was trained"):
        InfiniteWidth(candidates=4).run(replace(good, final=good.initial))
    with pytest.raises(ExhumeError, match="candidates should be greater than 0"):
        InfiniteWidth(candidates=0)
