"""The objective of the weight difference: that of the released code, and zero where theory says so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.attacks import WeightDifference
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from tests.attacks.victims import train_mlp

FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "weight_difference.json").read_text())


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def weights_of(layers):
    """Convert kernels stored as (in, out) to the names and shapes of our MLP."""
    numbered = {f"layer{number + 1}": layers[f"Dense_{number}"] for number in range(3)}
    kernels = {f"{name}.weight": tensor(layer["kernel"]).T.contiguous() for name, layer in numbered.items()}
    return kernels | {f"{name}.bias": tensor(layer["bias"]) for name, layer in numbered.items()}


def view_of(case):
    return AttackerView(
        model=MLP(width=8).build((12,), case["outputs"]),
        initial=weights_of(case["theta_initial"]),
        final=weights_of(case["theta_final"]),
        input_shape=(12,),
        bounds=tuple(case["box"]),
    )


@pytest.mark.parametrize("case", FIXTURE["cases"])
def test_value_and_gradients_are_those_of_the_released_code(case):
    view = view_of(case)
    images, duals = tensor(case["images"]), tensor(case["duals"])
    points = [view.final, view.initial] if case["both"] else [view.final]
    raw = torch.stack([duals, tensor(case["duals_at_initial"])] if case["both"] else [duals])
    problem = WeightChange.of(
        view,
        points,
        SearchSpace(12),
        box_weight=0.1,
        sharpness=(case["softplus_beta"],) * 2,
        dual_unit=1 / (len(images) * case["outputs"]),
        dtype=torch.float64,
    )
    value, (to_images, to_duals) = problem.objective((images, raw), tensor(0.3))
    expected = [tensor(case["grad_duals"]), tensor(case["grad_duals_at_initial"])][: len(points)]
    torch.testing.assert_close(value, tensor(case["loss"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_images, tensor(case["grad_images"]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_duals, torch.stack(expected), rtol=1e-9, atol=1e-9)


def test_the_true_inputs_and_duals_explain_the_whole_change_of_a_linearised_network():
    data, view = train_mlp(size=12, width=256, linearised=True)
    space = SearchSpace.spanned_by(clues_of(view).require_subspace(), torch.float64)
    inputs = view.to_model(data.train.inputs).flatten(1).double()
    free = space.project(inputs)
    torch.testing.assert_close(space.inputs(space.coordinates(free)), inputs, rtol=0, atol=1e-3)
    sharp = (1e6, 1e6)
    problem = WeightChange.of(view, [view.initial], space, box_weight=0.0, sharpness=sharp, dtype=torch.float64)
    change = torch.cat([part.flatten() for part in problem.target])
    columns = []
    for number in range(len(free)):
        duals = torch.zeros(1, len(free), 1, dtype=torch.float64)
        duals[0, number] = 1
        sums = problem.sums(space.coordinates(free), duals, tensor(1e6))[0]
        columns.append(torch.cat([part.flatten() for part in sums]))
    duals = torch.linalg.lstsq(torch.stack(columns, 1), change[:, None]).solution.reshape(1, -1, 1)
    assert float(problem.objective((free, duals), tensor(1.0))[0]) < 1e-5 * problem.size
    assert float(problem.confidence(free, duals).median()) > 0.99


def test_problems_of_one_network_share_its_weights():
    _, view = train_mlp(size=8, width=64)
    problem = WeightDifference(steps=60, precision="float64")._plan(view).problems[0]
    together = WeightChange.side_by_side([problem, replace(problem, dual_unit=2.0)])
    assert together.sums is problem.sums
    assert together.target is problem.target
