"""The input subspace: the rank is the training set size, the column space contains the inputs, noise is measured."""

from dataclasses import replace

import pytest
import torch

from exhume.clues.clues import clues_of
from exhume.clues.subspace import CLEAR_GAP, noise_edge, noise_floor, weight_decay_factor
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.training import Training
from tests.attacks.gates.victims import draw, view_of, with_constant, with_final


@pytest.mark.parametrize("size", [2, 6, 12, 20])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_rank_is_the_training_set_size_and_the_space_contains_the_inputs(size, seed):
    data = draw(size=size, seed=seed)
    view = view_of(data, seed=seed)
    subspace = clues_of(view).require_subspace()
    assert subspace.rank == size
    assert subspace.is_clear
    inputs = with_constant(view, data.train.inputs)
    outside = inputs - inputs @ subspace.basis @ subspace.basis.T
    assert float((outside.norm(dim=1) / inputs.norm(dim=1)).max()) < 1e-3


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 4, "epochs": 100},
        {"loss": "ce", "steps": 300},
        {"momentum": 0.9, "steps": 300},
        {"stop_loss": 1e-2},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_the_rank_survives_other_trainings(settings):
    assert clues_of(view_of(draw(size=12), **settings)).require_subspace().rank == 12


@pytest.mark.parametrize("activation", ["leaky-relu", "gelu", "tanh"])
def test_the_rank_needs_no_flat_side(activation):
    subspace = clues_of(view_of(draw(size=12), MLP(width=256, activation=activation))).require_subspace()
    assert subspace.rank == 12
    assert subspace.is_clear


def test_pixels_that_are_zero_in_every_input_do_not_disturb_the_rank():
    data = draw(size=12, centre=False)
    view = view_of(data)
    dark = (data.train.inputs == 0).all(dim=0).flatten()
    assert 5 < int(dark.sum()) < 40
    subspace = clues_of(view).require_subspace()
    assert subspace.rank == 12
    assert not bool(subspace.basis[:-1][dark].any())


def test_rows_and_basis_rebuild_the_change():
    subspace = clues_of(view_of(draw(size=12))).require_subspace()
    rebuilt = (subspace.basis * subspace.strengths) @ subspace.rows
    assert float((rebuilt - subspace.layer.change).abs().max()) < 20 * subspace.noise
    identity = torch.eye(12, dtype=torch.float64)
    torch.testing.assert_close(subspace.basis.T @ subspace.basis, identity)
    torch.testing.assert_close(subspace.rows @ subspace.rows.T, identity)


def test_the_subspace_is_described_by_json_values():
    described = clues_of(view_of(draw(size=12))).require_subspace().describe()
    assert described["training_size_estimate"] == 12
    assert described["training_size_is_clear"]
    assert described["singular_value_gap"] > CLEAR_GAP
    assert described["weight_decay_factor"] == 1.0
    assert described["layer"] == "layer1"
    assert described["singular_values"] == sorted(described["singular_values"], reverse=True)


@pytest.mark.parametrize("shape", [(60, 200), (200, 200), (300, 80)])
@pytest.mark.parametrize("rank", [0, 10])
def test_the_noise_floor_is_the_planted_noise(shape, rank):
    generator = torch.Generator().manual_seed(sum(shape) + rank)
    signal = (
        torch.randn(shape[0], rank, generator=generator).double()
        @ torch.randn(rank, shape[1], generator=generator).double()
    )
    for sigma in (1e-7, 1e-3):
        noisy = signal + sigma * torch.randn(shape, generator=generator, dtype=torch.float64)
        spectrum = torch.linalg.svdvals(noisy)
        assert noise_floor(spectrum, shape) == pytest.approx(sigma, rel=0.12)
        assert float(spectrum[rank]) < 1.1 * noise_edge(sigma, shape)


def factor_by_recursion(training: Training, steps: int) -> float:
    """Apply SGD with momentum and weight decay to a weight that has no gradient."""
    weight, velocity = 1.0, 0.0
    for step in range(steps):
        velocity = training.momentum_at(step) * velocity + training.weight_decay * weight
        weight -= training.lr * velocity
    return weight


@pytest.mark.parametrize(("source", "width"), [("faces", 384), ("digits", 256)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_weight_decay_factor_is_found(source, width, momentum):
    settings = {"weight_decay": 1e-3, "momentum": momentum, "steps": 400, "lr": 0.01}
    view = view_of(draw(source, size=12), MLP(width=width), **settings)
    expected = factor_by_recursion(Training(**settings), 400)
    assert expected < 0.997
    assert weight_decay_factor(clues_of(view).require_first_layer()) == pytest.approx(expected, abs=2e-6)
    subspace = clues_of(view).require_subspace()
    assert subspace.rank == 12
    assert subspace.is_clear
    assert subspace.layer.decay_factor == pytest.approx(expected, abs=2e-6)


class TestRefusals:
    @pytest.mark.parametrize("zeroed", ["initial", "final"])
    def test_layers_of_zeros(self, zeroed):
        view = view_of(draw(size=12))
        zeros = {name: torch.zeros_like(weight) for name, weight in view.final.items()}
        with pytest.raises(Refusal, match="no visible rank"):
            clues_of(replace(view, **{zeroed: zeros})).require_subspace()

    def test_as_many_inputs_as_values(self):
        with pytest.raises(Refusal, match="no visible rank"):
            clues_of(view_of(draw("breast-cancer", size=40))).require_subspace()

    def test_as_many_inputs_as_units(self):
        with pytest.raises(Refusal, match="no visible rank"):
            clues_of(view_of(draw("faces", size=40), MLP(width=32))).require_subspace()

    def test_adam(self):
        with pytest.raises(Refusal, match="Adam"):
            clues_of(view_of(draw("faces", size=12), optimiser="adam", steps=200)).require_subspace()

    def test_coarse_rounding(self):
        def to_int8(weight):
            unit = weight.abs().max() / 127
            return (weight / unit).round() * unit

        with pytest.raises(Refusal, match="no visible rank"):
            clues_of(with_final(view_of(draw(size=12)), to_int8)).require_subspace()
