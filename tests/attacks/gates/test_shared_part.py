"""Inputs of layers whose units nearly all inputs switch alike."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from exhume.attacks import GateCertificate
from exhume.attacks.gates.shared_part import SEPARATED, read_out_linearly, separate_inputs
from exhume.clues.clues import clues_of
from exhume.clues.first_layer import backward_signals
from exhume.clues.subspace import find_subspace
from exhume.records import AttackerView

SIZE = 12


def inputs_with_a_common_part() -> Tensor:
    """Return inputs that are alike, so that most units are on for all or for none."""
    generator = torch.Generator().manual_seed(0)
    return 0.5 + 0.2 * (torch.rand(SIZE, 40, generator=generator) - 0.5)


def view_of(model: nn.Module, inputs: Tensor, strengths: Tensor | None = None) -> AttackerView:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 3, (len(inputs),), generator=generator)
    losses = functional.cross_entropy(model(inputs), labels, reduction="none")
    loss = losses.mean() if strengths is None else strengths @ losses
    parts = torch.autograd.grad(loss, list(model.parameters()))
    gradient = dict(zip((name for name, _ in model.named_parameters()), parts, strict=True))
    return AttackerView(model=model, final=model.state_dict(), gradient=gradient, input_shape=(40,), bounds=(0.0, 1.0))


def network(*above: nn.Module, width: int = 500) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(40, width), nn.ReLU(), *(above or (nn.Linear(width, 3),)))


def separated(view: AttackerView) -> Tensor:
    subspace = clues_of(view).require_gate_subspace()
    layer = subspace.layer
    readout = read_out_linearly(backward_signals(view, layer.evidence.after, layer), len(layer.after), layer.after)
    assert readout is not None
    return separate_inputs(subspace, readout)


def test_units_that_nearly_all_inputs_turn_on_tell_about_the_others() -> None:
    inputs = inputs_with_a_common_part()
    found = separated(view_of(network(), inputs))
    errors = (found.float()[:, None] - inputs[None]).abs().amax(dim=2)
    assert int((errors.amin(dim=0) < 0.02).sum()) >= SIZE // 2
    assert int((errors.amin(dim=1) < 0.02).sum()) >= 0.8 * len(found)


def test_strong_inputs_are_found_beside_weak_ones() -> None:
    inputs = inputs_with_a_common_part()
    strengths = torch.logspace(0, -4, SIZE)
    found = separated(view_of(network(width=1000), inputs, strengths))
    errors = (found.float()[:, None] - inputs[None]).abs().amax(dim=2)
    is_found = errors.amin(dim=0) < 0.02
    assert bool(is_found[:4].all())
    assert int(is_found.sum()) >= SIZE - 3


def test_other_output_weights_show_no_shared_part() -> None:
    view = view_of(network(), inputs_with_a_common_part())
    subspace = clues_of(view).require_gate_subspace()
    wrong = torch.randn(3, 500, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert len(separate_inputs(subspace, wrong)) == 0


def test_outputs_must_be_linear_in_the_units() -> None:
    view = view_of(network(nn.Linear(500, 20), nn.ReLU(), nn.Linear(20, 3)), inputs_with_a_common_part())
    layer = clues_of(view).require_gate_layers()[0]
    signals = backward_signals(view, layer.evidence.after, layer)
    assert read_out_linearly(signals, len(layer.after), layer.after) is None


def test_separated_inputs_are_never_certified() -> None:
    inputs, strengths = inputs_with_a_common_part(), torch.logspace(0, -6, SIZE)  # weak inputs leave rows missing
    found = GateCertificate(rounds=1, patience=1, starts=2).run(view_of(network(), inputs, strengths), device="cpu")
    is_separated = torch.tensor([doubt == SEPARATED for doubt in found.diagnostics["doubts"]])
    assert bool(is_separated.any())
    assert not bool(found.certified[is_separated].any())
    assert len(found.diagnostics["error_bounds"]) == len(found) == len(found.confidence)


def test_a_state_whose_output_weights_drifted_is_like_one_gradient() -> None:
    inputs, model = inputs_with_a_common_part(), network(width=1000)
    view, generator = view_of(model, inputs), torch.Generator().manual_seed(3)
    layer = clues_of(view).require_gate_layers()[0]
    readout = model[2].weight.detach().double()
    drift = torch.randn(readout.shape, generator=generator, dtype=torch.float64)
    effects = functional.softmax(model(inputs), dim=1).detach().double() - 0.5

    def change(weights: Tensor) -> Tensor:
        on = (inputs.double() @ layer.after[:, :-1].T + layer.after[:, -1]) > 0
        with_constant = torch.cat([inputs.double(), torch.ones(SIZE, 1, dtype=torch.float64)], dim=1)
        return (with_constant.T @ (effects @ weights * on)).T

    moved = change(readout + 0.01 * drift)
    subspace = find_subspace(replace(layer, measured=moved))
    known = separate_inputs(subspace, readout, drift, 1e-5)
    unknown = separate_inputs(subspace, readout, None, 1e-5)

    def count(found: Tensor) -> int:
        return int(((found[:, None] - inputs[None]).abs().amax(dim=2) < 0.02).any(dim=0).sum())

    assert count(known) >= SIZE // 2 > count(unknown)
