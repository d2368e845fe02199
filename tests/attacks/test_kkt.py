"""The equations of a stationary point: the published objective, its slow twins, and its zero at a true one."""

import json
from pathlib import Path

import pytest
import torch

import exhume
from exhume.attacks.kkt import KktProblem
from exhume.attacks.multipliers import FreeMultipliers, MarginMultipliers, TiedMultipliers, balanced_labels
from exhume.attacks.search_space import SearchSpace
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
        multipliers = MarginMultipliers((labels + 1) // 2 if case["kind"] == "binary" else labels)
    problem = KktProblem.of(view_of(case), SearchSpace(10), multipliers, unit=1 / len(images), dtype=torch.float64)
    value, (to_images, to_raw) = problem.objective(
        images, raw, tensor(case["relu_alpha"]), tensor(case["min_lambda"] or 0.0)
    )
    expected = tensor(case["grad_multipliers"]).reshape(to_raw.shape)
    torch.testing.assert_close(value, tensor(case["loss"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_images, tensor(case["grad_images"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_raw, expected, rtol=1e-9, atol=1e-9)
    bare = KktProblem.of(
        view_of(case), SearchSpace(10), multipliers, unit=1 / len(images), box_weight=0.0, floor_weight=0.0,
        dtype=torch.float64,
    )  # fmt: skip
    kkt = bare.objective(images, raw, tensor(case["relu_alpha"]), tensor(0.0))[0]
    torch.testing.assert_close(kkt, tensor(case["kkt"]), rtol=1e-9, atol=1e-9)
