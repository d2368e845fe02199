"""How many inputs trained a layer, and the subspace they span, read off the layer's change alone.

The change ``Z = [ΔW; Δb] = Σ_i [x_i; 1] γ_iᵀ`` has one independent direction a training input, so the number of
singular values above the rounding noise *is* the size of the training set, as long as that is below both the input size
and the width, and every training input lies in the column space. Weight decay leaves one unknown factor on the initial
weights, which is found first.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.clues.first_layer import FirstLayer, first_layer
from exhume.core.errors import Refusal
from exhume.records import AttackerView

CLEAR_GAP = 3.0
"""A gap between neighbouring singular values that rounding noise alone does not make."""
ROUNDING = 1e-4
"""Noise, relative to the weights, that rounding during a float32 training may leave; more than this without a clear
gap is no rounding, but an optimiser that fills every direction."""
PENCIL_SIZE = 320
"""How many directions the search for the weight-decay factor looks at; enough for half as many inputs."""


@dataclass(frozen=True, kw_only=True)
class InputSubspace:
    """The subspace of the inputs, and how sure its dimension is."""

    rank: int
    """The estimated number of training inputs."""
    basis: Float[Tensor, "value rank"]
    """Orthonormal columns that span the inputs (with a last value for the constant 1 where the layer has a bias)."""
    rows: Float[Tensor, "rank unit"]
    """Orthonormal rows that span the inputs' effects ``γ_i``."""
    strengths: Float[Tensor, " rank"]
    """The singular values that belong to both."""
    noise: float
    """The standard deviation of one entry of the change that no input explains."""
    spectrum: Float[Tensor, " singular"]
    """All singular values."""
    layer: FirstLayer

    @property
    def gap(self) -> float:
        """By what factor the last singular value of the subspace exceeds the next one."""
        following = float(self.spectrum[self.rank]) if self.rank < len(self.spectrum) else 0.0
        return float(self.spectrum[self.rank - 1]) / max(following, torch.finfo(torch.float64).tiny)

    @property
    def is_clear(self) -> bool:
        """Whether the gap is one that noise alone does not make, so that the rank is the training-set size."""
        return self.gap >= CLEAR_GAP

    def describe(self) -> dict[str, float | int | bool | str | list[float]]:
        """Return the finding as JSON values."""
        return {
            "training_size_estimate": self.rank,
            "training_size_is_clear": self.is_clear,
            "singular_value_gap": min(self.gap, 1e300),
            "singular_values": [float(value) for value in self.spectrum],
            "noise_floor": self.noise,
            "weight_decay_factor": self.layer.kept,
            "layer": self.layer.name,
        }


def input_subspace(view: AttackerView) -> InputSubspace:
    """Find the subspace that holds every training input of the first trained layer.

    Raises:
        Refusal: when the layer is not dense, the start is unknown, or the change has no low rank to read off: at least
            as many inputs as the layer has inputs or units, an optimiser that rescales entries (Adam), or heavy noise.
    """
    layer = first_layer(view)
    subspace = measured(layer)
    # What weight decay leaves of the start may show a gap of its own, but is far more than rounding.
    if subspace is None or not subspace.is_clear or _relative(subspace.noise, layer) > ROUNDING:
        decayed = measured(layer.with_decay(weight_decay_factor(layer)))
        if decayed is not None and (subspace is None or decayed.gap > subspace.gap):
            subspace = decayed
    if subspace is None:
        raise Refusal(
            f"The change of layer {layer.name!r} has no visible rank: it was trained on at least "
            f"{min(layer.change.shape)} inputs, with an optimiser that rescales entries (Adam), or carries much noise."
        )
    return subspace


def measured(layer: FirstLayer) -> InputSubspace | None:
    """Measure the rank of a layer's change; None where no singular value stands clear of the bulk of the others."""
    parts = decomposed(layer.change)
    above, smaller = parts.above_noise, len(parts.spectrum)
    if above == 0 or above >= smaller - max(2, smaller // 50):
        return None
    rank = _best_gap(parts.spectrum, above)
    if rank == above and not _stands_clear(parts.spectrum, rank) and _relative(parts.noise, layer) > ROUNDING:
        return None
    return parts.subspace(rank, layer)


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """The singular values and vectors of the part of a change that is not exactly zero, and the noise under them."""

    left: Float[Tensor, "live_value singular"]
    spectrum: Float[Tensor, " singular"]
    right: Float[Tensor, "singular live_unit"]
    values: Bool[Tensor, " value"]
    """Which values are live."""
    units: Bool[Tensor, " unit"]
    noise: float

    @property
    def above_noise(self) -> int:
        """How many singular values exceed what noise alone makes."""
        shape = (len(self.left), self.right.shape[1])
        return int((self.spectrum > 1.1 * noise_edge(self.noise, shape)).sum())

    def subspace(self, rank: int, layer: FirstLayer) -> InputSubspace:
        """Return the subspace of the first ``rank`` singular vectors."""
        basis = self.left.new_zeros(len(self.values), rank)
        rows = self.left.new_zeros(rank, len(self.units))
        basis[self.values], rows[:, self.units] = self.left[:, :rank], self.right[:rank]
        return InputSubspace(
            rank=rank,
            basis=basis,
            rows=rows,
            strengths=self.spectrum[:rank],
            noise=self.noise,
            spectrum=self.spectrum,
            layer=layer,
        )


def decomposed(change: Float[Tensor, "value unit"]) -> Decomposition:
    """Decompose a change.

    Values that are zero in every input and units that fire on none leave exact zeros, which are no noise to measure.
    """
    values, units = (change != 0).any(dim=1), (change != 0).any(dim=0)
    live = change[values][:, units]
    left, spectrum, right = torch.linalg.svd(live, full_matrices=False)
    noise = noise_floor(spectrum, live.shape)
    return Decomposition(left=left, spectrum=spectrum, right=right, values=values, units=units, noise=noise)


def _best_gap(spectrum: Tensor, above: int) -> int:
    """Return where the widest gap lies among the singular values above the noise; all of them without a clear one."""
    following = spectrum[1 : above + 1].clamp(min=torch.finfo(torch.float64).tiny)
    ratios = spectrum[:above] / following
    # The mean of uncentred inputs makes a gap behind the first value that says nothing about their number.
    widest = int(ratios[1:].argmax()) + 1 if above > 1 else 0
    return widest + 1 if float(ratios[widest]) >= CLEAR_GAP else above


def _relative(noise: float, layer: FirstLayer) -> float:
    """Return noise relative to the size of a weight; to a start of zeros everything is large."""
    size = float(layer.before.pow(2).mean().sqrt())
    return noise / max(size, torch.finfo(torch.float64).tiny)


def _stands_clear(spectrum: Tensor, rank: int) -> bool:
    return float(spectrum[rank - 1]) >= CLEAR_GAP * float(spectrum[rank])


def noise_floor(spectrum: Float[Tensor, " value"], shape: tuple[int, ...]) -> float:
    """Estimate the entrywise noise of a matrix of this shape from the lower half of its singular values.

    The lower quarter is noise whenever fewer inputs than three quarters of the smaller side trained the layer; where it
    lies for unit noise says the law of Marchenko and Pastur.
    """
    small, large = min(shape), max(shape)
    if small == 0:  # nothing moved
        return 0.0
    ratio = small / large
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    grid = torch.linspace(low, high, 20_001, dtype=torch.float64)[1:-1]
    density = ((high - grid) * (grid - low)).sqrt() / grid
    cumulative = density.cumsum(0) / density.sum()
    lower_eighth = float((grid[int(torch.searchsorted(cumulative, 0.125))] * large).sqrt())
    return float(spectrum[small - 1 - small // 8]) / lower_eighth


def noise_edge(noise: float, shape: tuple[int, ...]) -> float:
    """Return the largest singular value that entrywise noise makes in a matrix of this shape."""
    return noise * (math.sqrt(min(shape)) + math.sqrt(max(shape)))


def weight_decay_factor(layer: FirstLayer) -> float:
    """Find ``c`` in ``final = c·initial + (something of low rank)``.

    The pencil ``final − c·initial`` loses rank exactly at ``c``, so ``c`` is an eigenvalue of the pencil as often as
    directions are untouched by training: the point where eigenvalues crowd.
    """
    units, values = layer.before.shape
    size = min(units, layer.input_size, PENCIL_SIZE)  # not the bias: one that starts at zero adds no rank
    generator = torch.Generator().manual_seed(0)
    # A random compression keeps the pencil's rank loss and makes the eigenvalue problem small.
    left = torch.randn(size, units, generator=generator, dtype=torch.float64).to(layer.before.device)
    right = torch.randn(values, size, generator=generator, dtype=torch.float64).to(layer.before.device)
    before, after = left @ layer.before @ right, left @ layer.after @ right
    pencil, is_singular = torch.linalg.solve_ex(before, after)
    if bool(is_singular) or not bool(pencil.isfinite().all()):  # a start of zeros, which decay leaves as it is
        return 1.0
    eigenvalues = torch.linalg.eigvals(pencil).cpu()
    real = eigenvalues.real[eigenvalues.imag.abs() < 1e-2].sort().values
    if len(real) < 8:
        return 1.0
    crowd = max(4, len(real) // 8)
    spans = real[crowd:] - real[:-crowd]
    densest = int(spans.argmin())
    return float(real[densest : densest + crowd].median())
