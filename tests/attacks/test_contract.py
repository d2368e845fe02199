"""What every attack promises, one line an attack."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import Bilevel, MaxMargin, Restarted, Stationarity, WeightDifference
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Reconstruction

SIZE = 8
ATTACKS = {
    "weight difference": WeightDifference(steps=60),
    "weight difference, all pixels": WeightDifference(steps=60, within_span=False, candidates=16),
    "weight difference, final": WeightDifference(steps=60, features="final", sharpness=(10.0, 50.0)),
    "weight difference, float64": WeightDifference(steps=60, features="midpoint", precision="float64"),
    "weight difference, published": replace(WeightDifference.published(), steps=60),
    "restarted": Restarted(WeightDifference(steps=30), times=2),
}
FINAL_ONLY = {
    "max-margin": MaxMargin(trials=4, trial_steps=20, restarts=2, steps=60),
    "max-margin, all pixels": MaxMargin(trials=1, restarts=2, steps=60, within_span=False, candidates=10),
    "stationarity": Stationarity(trials=2, trial_steps=20, restarts=2, steps=60),
    "stationarity, tied": Stationarity(multiplier="tied", trials=1, restarts=1, steps=60, precision="float64"),
    "bilevel": Bilevel(candidates=SIZE, weight_decay=1e-2, lower_steps=6, steps=30),
    "bilevel, stationary": Bilevel(candidates=SIZE, weight_decay=1e-2, lower="stationary", precision="float32"),
}
"""Attacks that never look at the initial weights unless they are there."""
ATTACKS |= FINAL_ONLY


@pytest.fixture(scope="module", params=["odd-even", "all"])
def view(request) -> AttackerView:
    size = SIZE if request.param == "odd-even" else 10
    data = exhume.load("digits", classes=request.param, size=size, test=0)
    return exhume.train(data, model=MLP(width=96, bias="first"), device="cpu").view()


@pytest.fixture(scope="module")
def found(view) -> dict[str, Reconstruction]:
    return {name: attack.run(view, seed=1, device="cpu") for name, attack in ATTACKS.items()}


@pytest.mark.parametrize("name", ATTACKS)
class TestEveryAttack:
    def test_returns_inputs_in_the_shape_and_range_of_the_view(self, name, found, view):
        one = found[name]
        assert one.inputs.shape[1:] == view.input_shape
        assert bool(torch.isfinite(one.inputs).all())
        assert one.certified.shape == one.confidence.shape == (len(one),)
        assert bool(((one.confidence >= 0) & (one.confidence <= 1)).all())
        low, high = view.bounds
        outside = (one.inputs - one.inputs.clamp(low, high)).abs().mean() if len(one) else torch.tensor(0.0)
        assert float(outside) < 0.2 * (high - low)

    def test_returns_everything_on_the_cpu(self, name, found):
        tensors = [value for value in vars(found[name]).values() if isinstance(value, torch.Tensor)]
        assert all(tensor.device.type == "cpu" for tensor in tensors)

    def test_says_how_it_ended(self, name, found):
        assert found[name].message
        assert found[name].seconds > 0

    def test_lowers_its_objective(self, name, found):
        history = found[name].history
        if history is not None:
            assert history[-1] < history[0]

    def test_repeats_itself_by_seed_and_leaves_global_state_alone(self, name, found, view):
        before, dtype = torch.random.get_rng_state(), torch.get_default_dtype()
        again = ATTACKS[name].run(view, seed=1, device="cpu")
        assert replace(again, seconds=0.0) == replace(found[name], seconds=0.0)
        assert torch.equal(before, torch.random.get_rng_state())
        assert dtype is torch.get_default_dtype()

    def test_is_its_repr(self, name, found):
        names = {kind.__name__: kind for kind in (Bilevel, MaxMargin, Restarted, Stationarity, WeightDifference)}
        assert found[name].attack == repr(ATTACKS[name])
        assert eval(found[name].attack, names) == ATTACKS[name]

    def test_survives_saving(self, name, found, tmp_path):
        found[name].save(tmp_path / "found.safetensors")
        assert Reconstruction.load(tmp_path / "found.safetensors") == found[name]

    def test_does_not_change_the_view(self, name, view):
        before = {key: weight.clone() for key, weight in view.final.items()}
        ATTACKS[name].check(view)
        assert all(torch.equal(before[key], weight) for key, weight in view.final.items())

    def test_refuses_a_view_without_a_start(self, name, view):
        if name in FINAL_ONLY:
            pytest.skip("needs none")
        with pytest.raises(Refusal, match="no initial weights"):
            ATTACKS[name].run(replace(view, initial=None), device="cpu")

    def test_refuses_a_network_that_was_not_trained(self, name, view):
        if name in FINAL_ONLY:
            pytest.skip("cannot know")
        with pytest.raises(Refusal, match="nothing was trained"):
            ATTACKS[name].run(replace(view, final=view.initial), device="cpu")

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_runs_on_a_gpu(self, name, view):
        one = ATTACKS[name].run(view, seed=1, device="cuda")
        assert one.inputs.device.type == "cpu"
        if one.history is not None:
            assert one.history[-1] < one.history[0]
