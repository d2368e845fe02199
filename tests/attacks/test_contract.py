"""What every attack promises: one table with the capabilities of each exported attack."""

import functools
import inspect
from dataclasses import dataclass, replace

import pytest
import torch

import exhume
from exhume import attacks
from exhume.attacks import (
    Attack,
    Bilevel,
    Combined,
    FeatureEdges,
    GateCertificate,
    InfiniteWidth,
    LastLayer,
    LevelLattice,
    MaxMargin,
    Restarted,
    SimulatedTraining,
    Stationarity,
    WeightDifference,
)
from exhume.attacks.restarts import RunsTogether
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Reconstruction
from tests.attacks.stationarity.rest_victims import images, view_at_rest


@dataclass(frozen=True, kw_only=True)
class ContractCase:
    """An attack and its capabilities."""

    attack: Attack
    needs_initial: bool = False
    """Refuses views without initial weights, and networks that were not trained."""
    proves: bool = False
    """May return certified candidates."""
    needs_infinite_width: bool = False
    """Needs an architecture with a known kernel of infinite width."""
    needs_gradient: bool = False
    """Needs one gradient of a last layer above features that are never negative."""
    needs_convolutions: bool = False
    """Needs a network at rest whose first dense layer lies above convolutions."""
    runs_together: bool = False
    """Can run many times in one program."""


SIZE = 6
QUICK = WeightDifference(steps=16)
CASES = {
    "weight difference": ContractCase(attack=QUICK, needs_initial=True, runs_together=True),
    "weight difference, all pixels": ContractCase(
        attack=WeightDifference(steps=16, within_span=False, candidates=12), needs_initial=True, runs_together=True
    ),
    "weight difference, float64": ContractCase(
        attack=WeightDifference(steps=16, features="midpoint", precision="float64"),
        needs_initial=True,
        runs_together=True,
    ),
    "weight difference, published": ContractCase(
        attack=replace(WeightDifference.published(), steps=16), needs_initial=True, runs_together=True
    ),
    "weight difference, splits": ContractCase(
        attack=WeightDifference(steps=16, splits=2), needs_initial=True, runs_together=True
    ),
    "gate certificate": ContractCase(attack=GateCertificate(rounds=2, starts=4), needs_initial=True, proves=True),
    "infinite width": ContractCase(
        attack=InfiniteWidth(candidates=3, rounds=1, steps=12), needs_initial=True, needs_infinite_width=True
    ),
    "last layer": ContractCase(attack=LastLayer(starts=2), needs_gradient=True, proves=True),
    "level lattice": ContractCase(attack=LevelLattice(), needs_initial=True, proves=True),
    "feature edges": ContractCase(attack=FeatureEdges(starts=8, descents=1), needs_convolutions=True),
    "max-margin": ContractCase(attack=MaxMargin(trials=2, trial_steps=6, winners=1, restarts=2, steps=16)),
    "max-margin, all pixels": ContractCase(
        attack=MaxMargin(trials=1, restarts=2, steps=16, within_span=False, candidates=SIZE)
    ),
    "max-margin, splits": ContractCase(attack=MaxMargin(trials=1, restarts=2, steps=16, splits=1)),
    "stationarity": ContractCase(attack=Stationarity(trials=2, trial_steps=6, winners=1, restarts=1, steps=16)),
    "stationarity, tied": ContractCase(
        attack=Stationarity(multiplier="tied", trials=1, restarts=1, steps=16, precision="float64")
    ),
    "bilevel": ContractCase(attack=Bilevel(candidates=SIZE, weight_decay=1e-2, lower_steps=3, steps=12)),
    "bilevel, stationary": ContractCase(
        attack=Bilevel(candidates=SIZE, weight_decay=1e-2, lower="stationary", precision="float32", steps=30)
    ),
    "simulated training": ContractCase(
        attack=SimulatedTraining(candidates=SIZE, simulated_steps=2, steps=10, norm_weight=0.0), needs_initial=True
    ),
    "combined": ContractCase(
        attack=Combined(attacks=(QUICK, MaxMargin(trials=1, restarts=1, steps=20))),
    ),
    "combined, from the initial weights": ContractCase(attack=Combined(attacks=(QUICK,)), needs_initial=True),
    "restarted": ContractCase(attack=Restarted(QUICK, times=2), needs_initial=True),
    "restarted certificate": ContractCase(
        attack=Restarted(GateCertificate(rounds=1, starts=2), times=2), needs_initial=True, proves=True
    ),
}


@functools.cache
def view_for(
    classes: str, has_kernel: bool, has_gradient: bool = False, has_convolutions: bool = False
) -> AttackerView:
    """A tiny trained network; with a bias in the first layer only, or one whose infinite-width kernel is known.

    With a gradient: a linear network of ten classes, whose features are its inputs.
    """
    if has_convolutions:
        return view_at_rest(images())
    if has_gradient:
        data = exhume.load("digits", size=10, test=0, centre=False)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        batch = data.train.inputs[:SIZE], data.train.labels[:SIZE].long()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        names = [name for name, _ in model.named_parameters()]
        gradient = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
        return AttackerView(model=model, final=model.state_dict(), gradient=gradient, input_shape=data.input_shape)
    data = exhume.load("digits", classes=classes, size=SIZE if classes == "odd-even" else 10, test=0)
    model = MLP(width=64, parameterisation="ntk") if has_kernel else MLP(width=64, bias="first")
    return exhume.train(data, model=model, device="cpu", steps=100).view()


def tensors_of(view: AttackerView) -> dict[str, torch.Tensor]:
    """Every tensor that a view holds, the model's own included."""
    held = {f"final.{name}": weight for name, weight in view.final.items()}
    held |= {f"initial.{name}": weight for name, weight in (view.initial or {}).items()}
    held |= {f"model.{name}": weight for name, weight in view.model.state_dict().items()}
    return held | {name: value for name, value in vars(view).items() if isinstance(value, torch.Tensor)}


@functools.cache
def run(name: str, classes: str) -> tuple[Reconstruction, int]:
    """Return what an attack finds, and how many times it reports progress."""
    case, reports = CASES[name], []
    view = view_for(classes, case.needs_infinite_width, case.needs_gradient, case.needs_convolutions)
    found = case.attack.run(view, seed=1, device="cpu", progress=lambda *report: reports.append(report))
    return found, len(reports)


ATTACKED = [(name, "odd-even") for name in CASES] + [
    (name, "all") for name in CASES if "," not in name and "restarted" not in name
]
"""Every attack on two classes, and one attack of each kind on ten."""


@pytest.fixture(params=ATTACKED, ids="-".join, scope="module")
def attacked(request) -> tuple[str, str]:
    """The name of an attack, and the classes of the network it attacks."""
    return request.param


@pytest.fixture
def case(attacked) -> ContractCase:
    return CASES[attacked[0]]


@pytest.fixture
def view(case, attacked) -> AttackerView:
    return view_for(attacked[1], case.needs_infinite_width, case.needs_gradient, case.needs_convolutions)


@pytest.fixture
def found(attacked) -> Reconstruction:
    return run(*attacked)[0]


def test_every_exported_attack_is_in_the_table():
    exported = {getattr(attacks, name) for name in attacks.__all__}
    classes = {one for one in exported if inspect.isclass(one) and issubclass(one, Attack) and one is not Attack}
    assert classes == {type(case.attack) for case in CASES.values()}


class TestEveryAttack:
    def test_returns_inputs_in_the_shape_and_range_of_the_view(self, found, view):
        assert found.inputs.shape[1:] == view.input_shape
        assert bool(torch.isfinite(found.inputs).all())
        assert found.certified.shape == found.confidence.shape == (len(found),)
        assert bool(((found.confidence >= 0) & (found.confidence <= 1)).all())
        low, high = view.bounds
        outside = (found.inputs - found.inputs.clamp(low, high)).abs().mean() if len(found) else torch.tensor(0.0)
        assert float(outside) < 0.2 * (high - low)

    def test_returns_everything_on_the_cpu(self, found):
        tensors = [value for value in vars(found).values() if isinstance(value, torch.Tensor)]
        assert all(tensor.device.type == "cpu" for tensor in tensors)

    def test_reports_how_it_ended(self, found):
        assert found.message
        assert found.seconds > 0

    def test_lowers_its_objective(self, found):
        if found.history is not None:
            assert found.history[-1] < found.history[0]

    def test_certifies_only_if_it_proves(self, found, case):
        assert case.proves or not bool(found.certified.any())

    def test_repeats_itself_by_seed_and_changes_neither_the_view_nor_global_state(self, found, case, view):
        held = {key: tensor.clone() for key, tensor in tensors_of(view).items()}
        random_state, dtype = torch.random.get_rng_state(), torch.get_default_dtype()
        tf32 = torch.backends.cuda.matmul.allow_tf32
        again = case.attack.run(view, seed=1, device="cpu")
        assert replace(again, seconds=0.0) == replace(found, seconds=0.0)
        assert held.keys() == tensors_of(view).keys()
        assert all(torch.equal(held[key], tensor) for key, tensor in tensors_of(view).items())
        assert torch.equal(random_state, torch.random.get_rng_state())
        assert dtype is torch.get_default_dtype()
        assert tf32 is torch.backends.cuda.matmul.allow_tf32

    def test_is_its_repr(self, found, case):
        names = {name: getattr(attacks, name) for name in attacks.__all__}
        assert found.attack == repr(case.attack)
        assert eval(found.attack, names) == case.attack

    def test_survives_saving(self, found, tmp_path):
        found.save(tmp_path / "found.safetensors")
        assert Reconstruction.load(tmp_path / "found.safetensors") == found

    def test_needs_the_initial_weights_of_a_trained_network_or_not(self, case, view):
        if case.needs_initial:
            with pytest.raises(Refusal, match="no initial weights"):
                case.attack.run(replace(view, initial=None), device="cpu")
            with pytest.raises(Refusal, match="nothing was trained"):
                case.attack.run(replace(view, final=view.initial), device="cpu")
        else:
            candidates = {"candidates": SIZE} if hasattr(case.attack, "candidates") else {}
            if isinstance(case.attack, Combined):
                pytest.skip("its attacks have cases of their own")
            replace(case.attack, **candidates).check(replace(view, initial=None))

    def test_runs_together_or_not(self, case):
        assert isinstance(case.attack, RunsTogether) is case.runs_together

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_runs_on_a_gpu(self, case, view):
        found = case.attack.run(view, seed=1, device="cuda")
        assert found.inputs.device.type == "cpu"
        if found.history is not None:
            assert found.history[-1] < found.history[0]


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_attack_ends_as_if_it_had_not_been(name, tmp_path):
    case = CASES[name]
    view = view_for("odd-even", case.needs_infinite_width, case.needs_gradient, case.needs_convolutions)
    whole, total = run(name, "odd-even")
    reports = []

    def stop_half_way(*report):
        reports.append(report)
        if len(reports) == total // 2 + 1:
            raise KeyboardInterrupt

    file = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        case.attack.run(view, seed=1, device="cpu", progress=stop_half_way, checkpoint=file)
    resumed = case.attack.run(view, seed=1, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
