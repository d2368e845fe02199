"""The input subspace: the rank is the training set size, the column space contains the inputs, noise is measured."""

import copy
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import nn

from exhume.clues.clues import clues_of
from exhume.clues.subspace import (
    CLEAR_GAP,
    _has_distinct_units,
    decompose,
    noise_edge,
    noise_floor,
    weight_decay_factor,
)
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from exhume.training import Training
from tests.attacks.gates.victims import (
    build_seeded,
    draw,
    train_by_plain_loop,
    true_rows,
    view_of,
    with_constant,
    with_final,
)


@pytest.mark.parametrize(("size", "seed"), [(2, 0), (12, 0), (20, 1)])
def test_the_rank_is_the_training_set_size_and_the_space_contains_the_inputs(size, seed):
    data = draw(size=size, seed=seed)
    view = view_of(data, seed=seed)
    subspace = clues_of(view).require_subspace()
    assert subspace.rank == size
    assert subspace.is_clear
    inputs = with_constant(view, data.train.inputs)
    outside = inputs - inputs @ subspace.basis @ subspace.basis.T
    assert float((outside.norm(dim=1) / inputs.norm(dim=1)).max()) < 1e-3


@pytest.mark.parametrize("noise", [1e-4, 1e-2])
def test_inputs_lie_outside_the_span_by_what_noise_predicts(noise):
    layer = clues_of(view_of(draw(size=6))).require_subspace().layer
    shares = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        inputs = with_constant_column(torch.rand(6, 64, generator=generator, dtype=torch.float64))
        effects = torch.randn(6, 200, generator=generator, dtype=torch.float64)
        change = inputs.T @ effects + noise * torch.randn(65, 200, generator=generator, dtype=torch.float64)
        subspace = decompose(change).subspace(6, layer)
        inside = inputs @ subspace.basis @ subspace.basis.T
        shares.append((inputs - inside)[:, :64].abs().amax(1) / subspace.largest_errors(inside[:, :64], 1e-3))
    assert 0.3 < float(torch.stack(shares).max()) < 1


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


@pytest.mark.parametrize("count", [0, 5, 11])
def test_known_rows_leave_the_inputs_of_the_others(count):
    data = draw(size=12)
    view = view_of(data)
    subspace = clues_of(view).require_subspace()
    rest = subspace.without(true_rows(view, data.train.inputs)[:count])
    inputs = with_constant(view, data.train.inputs)
    inside = (inputs @ rest.subspace.basis).norm(dim=1) / inputs.norm(dim=1)
    assert rest.subspace.rank == 12 - count
    assert float(inside[count:].min()) > 1 - 1e-4
    assert count == 0 or float(inside[:count].min()) < 1 - 1e-3
    change = rest.subspace.layer.change
    left = change - change @ rest.known.T @ rest.known
    rebuilt = (rest.subspace.basis * rest.subspace.strengths) @ rest.subspace.rows
    assert float((rebuilt - left).abs().max()) < 20 * subspace.noise


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


@pytest.mark.parametrize(("source", "width", "momentum"), [("faces", 384, 0.9), ("digits", 256, 0.0)])
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


class TestSizesThatTheRankDoesNotTell:
    """Ranks that are smaller than the training set, or unrelated to it, are never stated as its size."""

    @pytest.mark.parametrize("size", [20, 60])
    @pytest.mark.parametrize(("scaling", "width"), [("standard", 16), ("minmax", 64), ("none", 64), ("none", 256)])
    def test_a_table_whose_spectrum_decays(self, scaling, width, size):
        view = table_view(scaling, size=size, width=width)
        try:
            subspace = clues_of(view).require_subspace()
        except Refusal:
            return
        assert subspace.rank <= size
        assert subspace.is_clear == (subspace.rank == size)

    def test_a_table_that_shows_its_size(self):
        subspace = clues_of(table_view("standard", size=20, width=64)).require_subspace()
        assert (subspace.rank, subspace.doubt) == (20, None)

    def test_large_inputs_that_put_the_units_into_few_groups(self):
        subspace = clues_of(table_view("none", size=20, width=64, lr=0.01, steps=400)).require_subspace()
        assert subspace.gap > CLEAR_GAP
        assert subspace.rank < 20
        assert not subspace.is_clear
        assert subspace.describe()["training_size_doubt"]

    def test_a_merged_adapter(self):
        view = adapted_view(rank=4, size=10)
        subspace = clues_of(view).require_subspace()
        assert subspace.rank == 4
        assert subspace.gap > 100
        assert subspace.doubt is not None
        assert "adapter" in subspace.doubt
        assert subspace.size_estimate is None
        assert "training_size_estimate" not in subspace.describe()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_an_input_that_rounding_hides(self, dtype):
        """The 16th singular value of this optimiser's state lies below the noise of rounding to bfloat16."""
        view = state_view(size=16, width=256, seed=3, dtype=dtype)
        subspace = clues_of(view).require_subspace()
        if dtype == torch.float32:
            assert (subspace.rank, subspace.doubt) == (16, None)
        else:
            assert subspace.rank <= 16
            assert "lost in it" in subspace.doubt

    def test_units_that_respond_alike_limit_the_rank(self):
        generator = torch.Generator().manual_seed(0)
        groups = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
        assert not _has_distinct_units(groups.repeat(1, 8))
        assert _has_distinct_units(torch.randn(6, 48, generator=generator, dtype=torch.float64))
        assert _has_distinct_units(torch.ones(1, 5, dtype=torch.float64))


def table_view(scaling: str, *, size: int, width: int, lr: float = 0.05, steps: int = 300) -> AttackerView:
    """Train on the breast-cancer table of scikit-learn by a plain loop; ``none`` leaves values up to 4 254."""
    bunch = load_breast_cancer()
    scaler = {"standard": StandardScaler, "minmax": MinMaxScaler}.get(scaling)
    values = bunch.data if scaler is None else scaler().fit_transform(bunch.data)
    inputs, targets = torch.from_numpy(values[:size]).float(), torch.from_numpy(bunch.target[:size]).float()[:, None]
    model = build_seeded(lambda: nn.Sequential(nn.Linear(30, width), nn.ReLU(), nn.Linear(width, 1)))
    loss = nn.functional.binary_cross_entropy_with_logits
    initial, final = train_by_plain_loop(model, inputs, targets, loss=loss, lr=lr, steps=steps)
    return AttackerView(model=model, initial=initial, final=final, input_shape=(30,), bounds=None)


def state_view(*, size: int, width: int, seed: int, dtype: torch.dtype) -> AttackerView:
    """Train on faces by AdamW, and return the weights with the first moment, stored in a floating-point type."""
    data = draw("faces", size=size, seed=seed)
    inputs, targets = data.to_model(data.train.inputs), data.train.labels.float()[:, None]
    values = inputs[0].numel()
    model = build_seeded(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(values, width), nn.ReLU(), nn.Linear(width, 1)), seed
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(inputs), targets).backward()
        optimiser.step()
    moments = {name: optimiser.state[weight]["exp_avg"].to(dtype) for name, weight in model.named_parameters()}
    return AttackerView(
        model=model, final=model.state_dict(), optimiser_state=moments, input_shape=data.input_shape, offset=data.offset
    )


def with_constant_column(inputs):
    return torch.nn.functional.pad(inputs, (0, 1), value=1.0)


def adapted_view(rank: int, size: int) -> AttackerView:
    """Merge a low-rank adapter of the first layer, trained on ``size`` digits, into the weights of a network."""
    data = draw(size=size)
    inputs, targets = data.train.inputs.flatten(1), data.train.labels.float()[:, None]
    network = build_seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1)))
    down = nn.Parameter(torch.randn(rank, 64, generator=torch.Generator().manual_seed(1)) / 8)
    up = nn.Parameter(torch.zeros(96, rank))
    initial = copy.deepcopy(network.state_dict())
    optimiser = torch.optim.SGD([down, up], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        weights = initial | {"1.weight": initial["1.weight"] + up @ down}
        torch.func.functional_call(network, weights, (inputs,)).sub(targets).square().mean().backward()
        optimiser.step()
    final = initial | {"1.weight": (initial["1.weight"] + up @ down).detach()}
    return AttackerView(model=network, initial=initial, final=final, input_shape=data.input_shape)
