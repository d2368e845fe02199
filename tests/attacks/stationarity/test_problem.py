"""The equations of a stationary point: the published objective, its slow twins, and its zero at a true one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import exhume
from exhume.attacks.stationarity.multipliers import FreeMultipliers, MarginMultipliers, TiedMultipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.roughness import roughness_form
from exhume.clues.known_loss import balanced_labels
from exhume.clues.search_space import SearchSpace
from exhume.gradient_sums.module import ModuleSums
from exhume.gradient_sums.smooth_relu import GatedReLU
from exhume.models.mlp import MLP
from exhume.records import AttackerView

FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "max_margin.json").read_text())
NAMES = {
    "layers.0.weight": "layer1.weight",
    "layers.0.bias": "layer1.bias",
    "layers.1.weight": "layer2.weight",
    "layers.2.weight": "layer3.weight",
}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def view_of(case):
    return AttackerView(
        model=MLP(width=7, bias="first").build((10,), case["outputs"]),
        final={NAMES[name]: tensor(weight) for name, weight in case["weights"].items()},
        input_shape=(10,),
        bounds=(-1.0, 1.0),
    )


@pytest.mark.parametrize("case", FIXTURE["cases"], ids=lambda case: f"{case['kind']} {case['relu_alpha']:g}")
def test_value_and_gradients_are_those_of_the_released_code(case):
    images, raw = tensor(case["images"]), tensor(case["multipliers"])
    labels = torch.tensor(case["labels"])
    if case["kind"] == "regression":
        multipliers, raw = FreeMultipliers(), raw[:, None]
    else:
        is_binary = case["kind"] == "binary"
        multipliers = MarginMultipliers((labels + 1) // 2 if is_binary else labels, case["outputs"])
    # The released code sums squared violations; a problem divides them by the size of an input, which is 10.
    settings = {"box_weight": 10.0, "dtype": torch.float64}
    problem = StationarityProblem.of(view_of(case), SearchSpace(10), multipliers, **settings)
    problem = replace(problem, unit=1 / len(images))
    value, (to_images, to_raw) = problem.objective(
        images, raw, tensor(case["relu_alpha"]), tensor(case["min_lambda"] or 0.0)
    )
    expected = tensor(case["grad_multipliers"]).reshape(to_raw.shape)
    torch.testing.assert_close(value, tensor(case["loss"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_images, tensor(case["grad_images"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_raw, expected, rtol=1e-9, atol=1e-9)
    bare = replace(problem, box_weight=0.0, floor_weight=0.0)
    kkt = bare.objective(images, raw, tensor(case["relu_alpha"]), tensor(0.0))[0]
    torch.testing.assert_close(kkt, tensor(case["kkt"]), rtol=1e-9, atol=1e-9)


def dense_view(activation="relu", outputs=3, seed=0):
    model = MLP(width=9, bias="first", activation=activation).build(
        (1, 2, 3), outputs, torch.Generator().manual_seed(seed)
    )
    final = {name: weight.double() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, final=final, input_shape=(1, 2, 3), bounds=(-1.0, 1.0))


def conv_view(outputs=3):
    model = exhume.ConvNet(channels=4, depth=1, bias=False).build((1, 4, 4), outputs, torch.Generator().manual_seed(1))
    final = {name: weight.double() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, final=final, input_shape=(1, 4, 4), bounds=(-1.0, 1.0))


def guesses(view, candidates, outputs, multipliers):
    generator = torch.Generator().manual_seed(5)
    free = torch.randn(candidates, view.input_size, generator=generator, dtype=torch.float64)
    raw = multipliers.draw(multipliers.shape(candidates, outputs), generator).double()
    return free, raw


def families(candidates, outputs):
    labels = balanced_labels(candidates, outputs, torch.device("cpu"))
    squares = torch.nn.functional.mse_loss
    return {
        "margin": MarginMultipliers(labels, outputs),
        "free": FreeMultipliers(),
        "tied": TiedMultipliers(torch.nn.functional.cross_entropy, labels, 2.0),
        "tied to squares": TiedMultipliers(squares, torch.ones(candidates, outputs, dtype=torch.float64)),
    }


@pytest.mark.parametrize("family", ["margin", "free", "tied", "tied to squares"])
@pytest.mark.parametrize("view", [dense_view(), dense_view("tanh"), conv_view()], ids=["relu", "tanh", "conv"])
def test_gradients_are_those_of_finite_differences(view, family):
    multipliers = families(4, 3)[family]
    problem = StationarityProblem.of(view, SearchSpace(view.input_size), multipliers, dtype=torch.float64)
    problem = replace(problem, unit=0.5)
    start = guesses(view, 4, 3, multipliers)
    sharp, floor = tensor(3.0), tensor(0.4)

    def value(*at):
        return problem.objective(*at, sharp, floor)[0]

    slopes = problem.objective(*start, sharp, floor)[1]
    generator = torch.Generator().manual_seed(9)
    along = [torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in start]
    if isinstance(view.model.activation1, torch.nn.ReLU):
        along[0].zero_()  # sharp values with soft derivatives: differences of inputs would tell of the sharp ones
    step = 1e-6
    ahead = value(*(part + step * way for part, way in zip(start, along, strict=True)))
    behind = value(*(part - step * way for part, way in zip(start, along, strict=True)))
    expected = sum(float((slope * way).sum()) for slope, way in zip(slopes, along, strict=True))
    assert float((ahead - behind) / (2 * step)) == pytest.approx(expected, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("family", ["margin", "free", "tied", "tied to squares"])
@pytest.mark.parametrize(("view", "outputs"), [(dense_view(), 3), (dense_view(outputs=1), 1), (conv_view(), 3)])
def test_each_run_is_as_alone_with_its_own_sharpness_and_floor(view, outputs, family):
    if (outputs, family) == (1, "tied"):
        pytest.skip("a cross-entropy needs two outputs")
    multipliers = families(4, outputs)[family]
    problem = StationarityProblem.of(view, SearchSpace(view.input_size), multipliers, dtype=torch.float64)
    free, raw = (torch.stack([one, -0.3 * one, 2 * one.flip(0)]) for one in guesses(view, 4, outputs, multipliers))
    sharp, floor = tensor([3.0, 40.0, 200.0]), tensor([0.1, 0.4, 0.9])
    alone = [problem.objective(*run) for run in zip(free, raw, sharp, floor, strict=True)]
    values, gradients = problem.objective(free, raw, sharp, floor)
    torch.testing.assert_close(values, torch.stack([value for value, _ in alone]))
    for together, *each in zip(gradients, *(slopes for _, slopes in alone), strict=True):
        torch.testing.assert_close(together, torch.stack(each))
    residuals = [problem.residual(*run) for run in zip(free, raw, sharp, strict=True)]
    torch.testing.assert_close(problem.residual(free, raw, sharp), torch.stack(residuals))
    chunked = replace(problem, at_once=3).objective(free, raw, sharp, floor)
    torch.testing.assert_close(chunked, (values, gradients))


def test_weighted_layers_round_their_products_too():
    multipliers = families(4, 3)["margin"]
    problem = StationarityProblem.of(dense_view(), SearchSpace(6), multipliers, upper_layers=0.5, dtype=torch.float64)
    start = guesses(dense_view(), 4, 3, multipliers)
    exact = problem.objective(*start, tensor(5.0), tensor(0.3))[0]
    rounded = problem.rounded(torch.bfloat16).objective(*start, tensor(5.0), tensor(0.3))[0]
    assert 0 < float((rounded - exact).abs() / exact) < 0.02


@pytest.mark.parametrize("balance", [0.0, 0.5])
@pytest.mark.parametrize("upper_layers", [0.0, 1.0])
@pytest.mark.parametrize("times", [1e-3, 1.0, 1e3])
def test_float16_has_the_gradients_of_float32_whatever_the_size_of_the_last_layer(upper_layers, times, balance):
    """Its weights and with them duals may have any size; the gain keeps what lies between in the range of float16."""
    view = dense_view()
    names = list(view.final)
    final = {name: weight * (times if name == names[-1] else 1.0) for name, weight in view.final.items()}
    multipliers = families(4, 3)["margin"]
    problem = StationarityProblem.of(
        replace(view, final=final), SearchSpace(6), multipliers, upper_layers=upper_layers, balance=balance
    ).with_natural_unit(torch.randn(16, 6, generator=torch.Generator().manual_seed(0)), 4)
    start = tuple(part.float() for part in guesses(view, 4, 3, multipliers))
    knobs = torch.tensor(30.0), torch.tensor(0.3)
    exact, short = problem.objective(*start, *knobs), problem.shortened().objective(*start, *knobs)
    torch.testing.assert_close(short[0], exact[0], rtol=0.01, atol=0)
    for one, other in zip(short[1], exact[1], strict=True):
        assert one.dtype == torch.float32
        assert 0 < float((one - other).norm() / other.norm()) < 0.01


@pytest.mark.parametrize("family", ["margin", "free"])
def test_the_closed_form_is_that_of_any_module(family):
    view = dense_view()
    multipliers = families(4, 3)[family]
    problem = StationarityProblem.of(view, SearchSpace(6), multipliers, dtype=torch.float64)
    slow = replace(problem, sums=ModuleSums.at(view, [view.final], torch.float64, GatedReLU))
    start = guesses(view, 4, 3, multipliers)
    one, other = (each.objective(*start, tensor(20.0), tensor(0.3)) for each in (problem, slow))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(problem.sums.outputs(start[0]), slow.sums.outputs(start[0]))


@pytest.mark.parametrize("model", [exhume.MLP(width=9, bias="first"), exhume.ConvNet(channels=4, depth=1, bias=False)])
def test_the_objective_is_linear_in_the_weight_of_upper_layers(model):
    module = model.build((1, 4, 4), 2, torch.Generator().manual_seed(0))
    final = {name: weight.double() for name, weight in module.state_dict().items()}
    view = AttackerView(model=module, final=final, input_shape=(1, 4, 4))
    free = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    raw = torch.ones(3, 2, dtype=torch.float64)
    values = {}
    for upper in (0.0, 0.25, 1.0):
        settings = {"upper_layers": upper, "dtype": torch.float64}
        problem = StationarityProblem.of(view, SearchSpace(16), FreeMultipliers(), **settings)
        value, (slope, _) = problem.objective(free, raw, torch.tensor(5.0), torch.tensor(0.0))
        values[upper] = torch.cat([value[None], slope.flatten()])
    torch.testing.assert_close(values[0.25], 0.75 * values[0.0] + 0.25 * values[1.0])


def test_rough_inputs_cost_more_and_the_gradient_says_so():
    model = MLP(width=7, bias="first").build((1, 3, 4), 1, torch.Generator().manual_seed(0))
    view = AttackerView(model=model, final=model.state_dict(), input_shape=(1, 3, 4))
    space, labels = SearchSpace(12), torch.tensor([0, 1])
    plain = StationarityProblem.of(view, space, MarginMultipliers(labels, 1), dtype=torch.float64)
    smooth = replace(plain, roughness=2.0 * roughness_form(space, (1, 3, 4)))
    free = torch.randn(2, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_(True)
    arguments = (torch.ones(2).double(), torch.tensor(30.0).double(), torch.tensor(0.1).double())
    values, slopes = zip(*(problem.objective(free.detach(), *arguments) for problem in (plain, smooth)), strict=True)
    rough = 2 * ((free @ roughness_form(space, (1, 3, 4))) * free).sum()
    torch.testing.assert_close(values[1] - values[0], rough.detach())
    torch.testing.assert_close(slopes[1][0] - slopes[0][0], torch.autograd.grad(rough, free)[0])
