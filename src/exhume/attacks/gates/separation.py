"""Separate inputs of a view: from one gradient, or from the state of an optimiser whose steps became small."""

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.features import is_plausible
from exhume.attacks.gates.problem import RowProblem
from exhume.attacks.gates.shared_part import read_out_linearly, separate_inputs
from exhume.clues.first_layer import FirstLayer, backward_signals
from exhume.clues.subspace import InputSubspace
from exhume.core.progress import Tick, no_tick
from exhume.records import AttackerView


def separate(
    view: AttackerView, subspace: InputSubspace, problem: RowProblem, tick: Tick = no_tick
) -> Float[Tensor, "input ..."]:
    """Return inputs that units with few participants determine; none where nothing like one gradient shows them.

    ``tick`` is called between steps; it may raise to stop.
    """
    layer = subspace.layer
    none = torch.zeros(0, *(view.input_shape if layer.reads_input else (layer.input_size,)))
    if not problem.is_local or not layer.has_bias or layer.evidence.others:
        return none
    readout = read_out_linearly(problem.signals[-1], len(layer.after), layer.after)
    if readout is None:
        return none
    if problem.gates_are_exact:
        drift, precisions = None, [0.0]
    else:  # how far gradients moved while they were averaged differs, so nothing found is no last word
        averaged = problem.search.averaged
        drift, precisions = find_drift(view, layer, readout), [averaged, 4 * averaged, 16 * averaged]
    for precision in precisions:
        inputs = separate_inputs(subspace, readout, drift, precision, problem.certificate, tick)
        if len(inputs):
            break
    inputs = inputs[is_plausible(view, layer, inputs, problem.certificate)].float()
    return (view.to_pixels(inputs.to(view.device)) if layer.reads_input else inputs).cpu()


def find_drift(
    view: AttackerView, layer: FirstLayer, readout: Float[Tensor, "output unit"]
) -> Float[Tensor, "output unit"] | None:
    """Return how the last step of the optimiser moved the output weights of units, at their size; None if unknown."""
    step = {} if view.optimiser_state is None else view.optimiser_state.last_step()
    step = {name: tensor for name, tensor in step.items() if 0 < float(tensor.double().norm()) < torch.inf}
    weights = {name: tensor.double() for name, tensor in layer.evidence.after.items() if name in step}
    lengths = [float(weights[name].norm() / step[name].double().norm()) for name in weights]
    # A small step in this direction, as a finite difference: at most a thousandth of any parameter.
    moved = {name: tensor + 1e-3 * min(lengths) * step[name].double() for name, tensor in weights.items()}
    signals = backward_signals(view, {**layer.evidence.after, **moved}, layer)
    there = read_out_linearly(signals, len(layer.after), layer.after)
    if there is None or torch.equal(there, readout):
        return None
    drift = there - readout
    scaled: Tensor = drift * (readout.norm() / drift.norm())
    return scaled
