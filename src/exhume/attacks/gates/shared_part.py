"""Inputs of a layer whose units nearly all inputs switch alike, as after training on few examples.

A trained layer has many units that are off for all inputs, and many that are on for all. An input then leaves too few
zeros in its row to be found by them. But in one gradient of a layer below a linear output layer, a unit ``u`` that is
on for all inputs has the change ``K w_u``, with its output weights ``w_u`` and one matrix ``K`` for all such units.
Once ``K`` is known, ``K w_u`` less the change of any other unit is the sum over the inputs that leave it *off*. So a
unit that most inputs turn on tells about the few that do not, as a unit that few inputs turn on tells about those few.
Each unit then has few *participants*; the change of a unit with a single one is its input.

The first moment of an optimiser is nearly one gradient, once its steps are small. What moves most in it are the output
weights; its last step says in which direction, ``v_u`` for each unit, and ``K w_u`` becomes ``K w_u + L v_u``.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.attacks.gates.column_fit import add_inputs
from exhume.attacks.gates.participants import Columns, as_inputs, fit_robustly, peel
from exhume.attacks.gates.rules import CertificateRules
from exhume.clues.first_layer import Signals
from exhume.clues.subspace import CLEAR_GAP, InputSubspace, decompose
from exhume.core.least_squares import solve_least_squares
from exhume.core.progress import Tick, no_tick
from exhume.records import Reconstruction

SEPARATED = "it was separated from the part that all inputs share, which proves nothing"
"""Why an input that was found in this way is not certified."""


def read_out_linearly(signals: Signals, units: int, like: Tensor) -> Float[Tensor, "output unit"] | None:
    """Return the output weights of all units, where outputs are linear in what the activation returns; else None."""
    generator = torch.Generator().manual_seed(0)
    # All units are on, some of them a thousand times as much as others: this switches the gates of any layer above.
    sizes = 10 ** (6 * torch.rand(8, units, generator=generator, dtype=torch.float64) - 3)
    first, *others = signals(sizes.to(like))
    return first if all(torch.allclose(first, other) for other in others) else None


def separate_inputs(
    subspace: InputSubspace,
    readout: Float[Tensor, "output unit"],
    drift: Float[Tensor, "moved unit"] | None = None,
    precision: float = 0.0,
    certificate: CertificateRules | None = None,
    tick: Tick = no_tick,
) -> Float[Tensor, "input value"]:
    """Find inputs of a layer with a bias from one gradient, as far as units with few participants determine them.

    Args:
        subspace: what the gradient of the layer shows.
        readout: the output weights of all units.
        drift: the direction in which they moved while gradients were summed; None: they did not.
        precision: least deviation of the change of a unit from one gradient, relative to its size.
        certificate: the error rate and the precision of inputs; None: the defaults.
        tick: called between steps; may raise to stop.
    """
    rules = certificate or CertificateRules()
    columns = _pose(subspace, readout, drift, max(precision, subspace.layer.precision), rules, tick)
    if columns is None:
        return subspace.basis.new_zeros(0, subspace.basis.shape[0] - 1)
    codes = add_inputs(columns, peel(columns, tick), tick)
    return (codes @ columns.basis.T)[:, :-1]


def add_candidates(found: Reconstruction, inputs: Float[Tensor, "input ..."], doubt: str) -> Reconstruction:
    """Return a reconstruction of :class:`GateCertificate` with further inputs, none of them certified."""
    count, about = len(inputs), found.diagnostics
    if count == 0:
        return found
    assert found.p_values is not None
    return replace(
        found,
        inputs=torch.cat([found.inputs, inputs]),
        certified=torch.cat([found.certified, torch.zeros(count, dtype=torch.bool)]),
        confidence=torch.cat([found.confidence, torch.full((count,), 0.5)]),
        p_values=torch.cat([found.p_values, torch.ones(count).to(found.p_values)]),
        diagnostics={
            **about,
            "agreement": [*about["agreement"], *[None] * count],
            "contradictions": [*about["contradictions"], *[None] * count],
            "error_bounds": [*about["error_bounds"], *[None] * count],
            "doubts": [*about["doubts"], *[doubt] * count],
            "separated": about.get("separated", 0) + (count if doubt == SEPARATED else 0),
        }
        | ({"on_levels": [*about["on_levels"], *[False] * count]} if "on_levels" in about else {}),
    )


def _pose(
    subspace: InputSubspace,
    readout: Float[Tensor, "output unit"],
    drift: Float[Tensor, "moved unit"] | None,
    precision: float,
    rules: CertificateRules,
    tick: Tick,
) -> Columns | None:
    """Subtract what all inputs share; None where no unit shows it."""
    layer = subspace.layer
    change, values = layer.change, layer.change.shape[0]
    parts = decompose(change, layer.rounding)
    level = parts.spectrum[min(subspace.rank + len(parts.spectrum) // 10, len(parts.spectrum) - 1)]
    rank = max(subspace.rank, int((parts.spectrum > CLEAR_GAP * level).sum()))
    basis = change.new_zeros(values, rank)
    basis[parts.values] = parts.left[:, :rank]
    moved, size = basis.T @ change, change.norm(dim=0)
    deviations = rules.deviations(change.numel())
    is_live = size > deviations * subspace.noise * math.sqrt(values)
    deviation = precision * size / math.sqrt(12 * values) + subspace.noise  # of rounding, evenly spread over a step
    every = readout if drift is None else torch.cat([readout, drift])
    limit = deviations * deviation * math.sqrt(rank)
    shared, is_shared = _fit_shared_part(moved, every, len(readout), is_live, limit, tick)
    if int(is_shared.sum()) < 2 * len(every):
        return None
    gates = layer.after @ basis
    limits = torch.cat([gates[is_shared], -gates[~is_live]])
    limits = limits / limits.norm(dim=1, keepdim=True).clamp(min=1e-300)
    chosen = is_live & ~is_shared

    def pose(is_on: Bool[Tensor, " unit"]) -> Columns:
        turned = torch.where(is_on, -1.0, 1.0).to(gates)
        return Columns(
            changes=torch.where(is_on, moved - shared @ every, moved)[:, chosen] / deviation[chosen],
            gates=(turned[:, None] * gates)[chosen],
            limits=limits,
            basis=basis,
            signals=(turned * every / deviation)[:, chosen],
            precision=precision,
            certificate=rules,
        )

    columns = pose(gates @ _centre(limits) > 0)
    seen = as_inputs(columns, columns.changes)
    return pose((seen @ gates.T > 0).double().mean(dim=0) > 0.5) if len(seen) else columns


def _fit_shared_part(
    moved: Float[Tensor, "rank unit"],
    every: Float[Tensor, "weight unit"],
    outputs: int,
    is_live: Bool[Tensor, " unit"],
    limit: Float[Tensor, " unit"],
    tick: Tick,
) -> tuple[Float[Tensor, "rank weight"], Bool[Tensor, " unit"]]:
    """Find the matrix ``K`` with ``K w_u`` the change of as many units as possible, and these units.

    The first ``outputs`` of the weights come first: they alone tell which units the others are fitted to.
    """
    ones, chosen = torch.ones_like(limit), is_live
    shared, _ = fit_robustly(every[:outputs, chosen], moved[:, chosen], ones[chosen], tick)
    if len(every) > outputs:
        residuals = (moved - shared @ every[:outputs]).norm(dim=0)
        chosen = is_live & (residuals <= residuals[is_live].median())
        shared, _ = fit_robustly(every[:, chosen], moved[:, chosen], ones[chosen], tick)
    fits = is_live
    for _ in range(4):
        fits = is_live & ((moved - shared @ every).norm(dim=0) < limit)
        if int(fits.sum()) < 2 * len(every):
            break
        shared = solve_least_squares(every[:, fits].T, moved[:, fits].T).T
    return shared, fits


def _centre(limits: Float[Tensor, "limit rank"]) -> Float[Tensor, " rank"]:
    """Return a point well inside all limits, as the inputs are: most of them lie on its side of other units."""
    wanted = torch.ones(len(limits), 1).to(limits)
    point = solve_least_squares(limits, wanted)[:, 0]
    for _ in range(300):
        margins = limits @ point
        size = margins.abs().mean()
        pull = torch.softmax(-3 * margins / size, dim=0) @ limits
        point = point + 0.3 * size * pull / pull.norm()
    return point
