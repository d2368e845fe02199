"""The number of inputs that trained a layer and the subspace they span, from the layer's weight change alone.

The change ``Z = [ΔW; Δb] = Σ_i [x_i; 1] γ_iᵀ`` has at most one independent direction per training input, and every
training input lies in its column space. So its rank is a lower bound of the training set size. It *is* that size where
inputs and rows are linearly independent and none is hidden in the noise; :attr:`InputSubspace.doubt` says what speaks
against this. Weight decay multiplies the initial weights by one unknown factor, which is estimated first.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from scipy.stats import norm
from torch import Tensor

from exhume.clues.first_layer import FirstLayer
from exhume.core.errors import Refusal

CLEAR_GAP = 3.0
"""Ratio of neighbouring singular values from which there is a gap between them; noise alone does not reach it."""
WIDE_GAP = 10.0
"""Ratio of neighbouring singular values from which a gap that ends in independent noise gives the rank at once."""
LIKE_NOISE = 3.0
"""Largest singular value beyond the gap, relative to the edge of independent noise, that still looks like noise; the
signals of tables go on at 4 and more."""
LIKE_ROUNDING = 10.0
"""The same where the noise is as small as rounding, whose errors are not quite independent; measured up to 5.7."""
SMALL_ROUNDING = 1e-5
"""Noise relative to the size of a weight below which it is rounding; a training of 3 000 steps leaves up to 6e-6."""
ARITHMETIC = 1e-5
"""Singular value relative to the largest that errors of float32 gradients make: they are proportional to the gradient,
and neighbouring entries share them. Measured up to 2e-6, after training that diverged for a while."""
LEAST_HEIGHT = 20.0
"""Least ratio of the smallest singular value to the noise from which no input is taken to be hidden below. Rounding to
bfloat16 and float16 often leaves less. Neighbouring singular values of 416 trainings on 5 to 24 faces and digits, in
float32: none of 2 064 ratios in weight changes and first gradients is larger (1.2 in the median, 9 in 1 of 1 000), and
12 of 2 068 in gradients and optimiser states of later steps."""
LARGEST_RANK = 0.75
"""Largest rank, as a fraction of the possible rank, that can be told from a larger one: noise is measured below it."""
UNITS_PER_DIRECTION = 2
"""Number of units that respond differently, per direction, from which the rank counts inputs and not groups of units.
Measured: 0.9 to 1.9 where large inputs put all units into few groups, 2.5 and more in ordinary trainings."""
SAME_RESPONSE = 0.9
"""Cosine of two units' parts in the rows above which they respond alike."""
FROZEN_BIAS = "the bias did not move with the weights, as after a low-rank adapter was merged"
"""The doubt that the rank is that of an adapter, which need not have anything to do with the number of inputs."""
DECAY_PRECISION = 2e-6
"""Error of an estimated weight-decay factor; a factor this near to 1 is 1."""
ROUNDING = 1e-4
"""Largest noise, relative to the size of a weight, that rounding in a float32 training leaves. More noise without a
clear gap comes from an optimiser that fills every direction."""
PENCIL_SIZE = 320
"""Size of the compressed eigenvalue problem for the weight-decay factor; enough for half as many inputs."""


class Rest(NamedTuple):
    """What known effects leave of a layer's change."""

    subspace: "InputSubspace"
    """The subspace of the other inputs."""
    known: Float[Tensor, "row unit"]
    """An orthonormal basis of the span of the known effects."""


@dataclass(frozen=True, kw_only=True)
class InputSubspace:
    """The subspace of the inputs, and how certain its dimension is."""

    rank: int
    """The estimated number of training inputs."""
    basis: Float[Tensor, "value rank"]
    """Orthonormal columns that span the inputs; the last value stands for the constant 1 where the layer has a bias."""
    rows: Float[Tensor, "rank unit"]
    """Orthonormal rows that span the inputs' effects ``γ_i``."""
    strengths: Float[Tensor, " rank"]
    """The singular values of the basis vectors and rows."""
    noise: float
    """Standard deviation of the part of one entry of the change that no input explains."""
    spectrum: Float[Tensor, " singular"]
    """All singular values."""
    layer: FirstLayer

    def without(self, rows: Float[Tensor, "row rank"]) -> Rest:
        """Return what the effects of some inputs leave, given as independent combinations of :attr:`rows`."""
        left, strengths, right = split_off(self.strengths, rows)
        others = replace(
            self, rank=len(strengths), basis=self.basis @ left, strengths=strengths, rows=right @ self.rows
        )
        return Rest(others, torch.linalg.qr(rows.T).Q.T @ self.rows)

    def largest_errors(self, inputs: Float[Tensor, "input value"], error_rate: float) -> Float[Tensor, " input"]:
        """Bound how far the values of true inputs may lie outside the span, beside these points of it.

        Independent noise of standard deviation ``s`` tilts the singular vector of strength ``σ`` by ``s/σ`` per value.
        So an input with coordinates ``c`` is off by normal errors of standard deviation ``s·‖c/σ‖``.

        Args:
            inputs: points of the span, without the constant.
            error_rate: the probability that any value of an input is off by more.
        """
        values = len(self.basis) - inputs.shape[1]
        whole = torch.nn.functional.pad(inputs.to(self.basis), (0, values), value=1.0)
        deviations: Tensor = self.noise * (whole @ self.basis / self.strengths).norm(dim=1)
        return float(norm.isf(error_rate / (2 * len(self.basis)))) * deviations

    @property
    def gap(self) -> float:
        """The ratio of the last singular value of the subspace to the next one."""
        return float(self.spectrum[self.rank - 1]) / max(
            _following(self.spectrum, self.rank), torch.finfo(torch.float64).tiny
        )

    @property
    def height(self) -> float:
        """The ratio of the last singular value of the subspace to the largest that is noise, expected or seen.

        An input whose singular value is smaller by this factor or more leaves no visible trace.
        """
        return float(self.spectrum[self.rank - 1]) / max(
            self.edge, _following(self.spectrum, self.rank), torch.finfo(torch.float64).tiny
        )

    @property
    def is_clear(self) -> bool:
        """Whether the rank is the training set size, and not only a lower bound of it."""
        return self.doubt is None

    @functools.cached_property
    def doubt(self) -> str | None:
        """Why the rank may differ from the training set size; None where nothing speaks against it."""
        if self.layer.has_frozen_bias:
            return FROZEN_BIAS
        steps = self.spectrum[1 : self.rank - 1] / self.spectrum[2 : self.rank]  # the first is that of the mean input
        largest = float(steps.max()) if len(steps) else 1.0
        limit = max(self.edge * _tolerance(self.noise, self.layer), ARITHMETIC * float(self.spectrum[0]))
        if self.gap < CLEAR_GAP or _following(self.spectrum, self.rank) > limit:
            return "the singular values have no clear gap"
        if self.height < max(LEAST_HEIGHT, largest**2):  # the next value of such a signal may lie below the noise
            return "the smallest singular values are so near the noise that further ones may be lost in it"
        if self.rank > LARGEST_RANK * len(self.spectrum):
            return "the rank is nearly the largest possible"
        if not _has_distinct_units(self.rows):
            return "few units respond differently, and their number may limit the rank"
        return None

    @property
    def size_estimate(self) -> int | None:
        """The training set size where the rank is clear, else a lower bound; None where the rank is no bound either."""
        has_moved = not self.layer.inputs_stood_still  # each input may leave the direction of its movement beside it
        return None if self.doubt == FROZEN_BIAS or has_moved else self.rank

    @property
    def edge(self) -> float:
        """The largest singular value that independent noise makes."""
        live = (int((side != 0).any(dim=axis).sum()) for side, axis in ((self.basis, 1), (self.rows, 0)))
        return noise_edge(self.noise, tuple(live))

    def describe_size(self) -> dict[str, float | int | bool | str | list[float]]:
        """Return what the rank tells about the training set size as JSON values."""
        estimate = {} if self.size_estimate is None else {"training_size_estimate": self.size_estimate}
        return {**estimate, "training_size_is_clear": self.is_clear, "training_size_doubt": self.doubt or ""}

    def describe(self) -> dict[str, float | int | bool | str | list[float]]:
        """Return the rank and how it was found as JSON values."""
        return self.describe_size() | {
            "singular_value_gap": min(self.gap, 1e300),
            "singular_values": [float(value) for value in self.spectrum],
            "noise_floor": self.noise,
            "weight_decay_factor": self.layer.decay_factor,
            "layer": self.layer.name,
            "evidence": self.layer.evidence.kind,
        }


def split_off(
    strengths: Float[Tensor, " rank"], rows: Float[Tensor, "row rank"]
) -> tuple[Float[Tensor, "rank free"], Float[Tensor, " free"], Float[Tensor, "free rank"]]:
    """Return the singular vectors and values of what known rows leave of a change with the given singular values.

    With the projector ``P`` on the rows, ``Z (I − P)`` contains no input that has one of them, and its column space is
    spanned by the inputs of all others.
    """
    known = torch.linalg.qr(rows.T).Q
    remaining = strengths[:, None] * (torch.eye(len(strengths)).to(known) - known @ known.T)
    left, values, right = torch.linalg.svd(remaining)
    free = len(strengths) - len(rows)
    return left[:, :free], values[:free], right[:free]


def find_subspace(layer: FirstLayer) -> InputSubspace:
    """Find the subspace that holds every training input of a layer.

    Raises:
        Refusal: when the change has no low rank: at least as many inputs as the layer has inputs or units, an optimiser
            that rescales entries (Adam), or much noise.
    """
    subspace = measure_rank(layer)
    # What weight decay leaves of the initial weights can have a gap of its own, but is far larger than rounding.
    if subspace is None or not subspace.is_clear or _relative_noise(subspace.noise, layer) > ROUNDING:
        decayed = measure_rank(replace(layer, decay_factor=weight_decay_factor(layer)))
        if decayed is not None and (subspace is None or _certainty(decayed) > _certainty(subspace)):
            subspace = decayed
    if subspace is None:
        raise Refusal(
            f"The {layer.evidence.kind} of layer {layer.name!r} has no visible rank: it comes from at least "
            f"{min(layer.change.shape)} inputs"
            + (", from an optimiser that rescales entries (Adam)," if layer.evidence.kind == "weight change" else "")
            + " or carries much noise."
        )
    return subspace


def measure_rank(layer: FirstLayer) -> InputSubspace | None:
    """Measure the rank of a layer's change; return None where no singular value stands out from the bulk."""
    parts = decompose(layer.change, layer.rounding)
    above, smaller = parts.above_noise, len(parts.spectrum)
    if above == 0 or above >= smaller - max(2, smaller // 50):
        return None
    rank = widest_gap(parts, _tolerance(parts.noise, layer))
    if rank is None and _relative_noise(parts.noise, layer) > ROUNDING:
        return None
    return parts.subspace(above if rank is None else rank, layer)


def _certainty(subspace: InputSubspace) -> tuple[bool, float]:
    return subspace.is_clear, subspace.gap


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """The singular value decomposition of the nonzero part of a change, and the noise level."""

    left: Float[Tensor, "live_value singular"]
    spectrum: Float[Tensor, " singular"]
    right: Float[Tensor, "singular live_unit"]
    values: Bool[Tensor, " value"]
    """Which values of the input have a nonzero change."""
    units: Bool[Tensor, " unit"]
    """Which units have a nonzero change."""
    noise: float

    @property
    def edge(self) -> float:
        """The largest singular value that independent noise makes."""
        return noise_edge(self.noise, (len(self.left), self.right.shape[1]))

    @property
    def above_noise(self) -> int:
        """The number of singular values that noise alone cannot make."""
        return int((self.spectrum > 1.1 * self.edge).sum())

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


def decompose(change: Float[Tensor, "value unit"], least_noise: float = 0.0) -> Decomposition:
    """Compute the singular value decomposition of a change, without rows and columns that are exactly zero.

    Values that are zero in every input and units that never fire leave exact zeros, which would bias the noise level.
    ``least_noise`` is what is known about it beforehand.
    """
    values, units = (change != 0).any(dim=1), (change != 0).any(dim=0)
    live = change[values][:, units]
    left, spectrum, right = torch.linalg.svd(live, full_matrices=False)
    noise = max(noise_floor(spectrum, live.shape), least_noise)
    return Decomposition(left=left, spectrum=spectrum, right=right, values=values, units=units, noise=noise)


def widest_gap(parts: Decomposition, tolerance: float) -> int | None:
    """Return the rank at the widest gap that ends in the noise; None without one.

    A gap between two signals tells nothing about their number: a few directions that all inputs share stand out too. So
    a gap that ends in independent noise counts before one that ends in what errors of float32 gradients may be.
    """
    spectrum, above = parts.spectrum, parts.above_noise
    following = spectrum[1 : above + 1].clamp(min=torch.finfo(torch.float64).tiny)
    for limit, least in ((tolerance * parts.edge, WIDE_GAP), (ARITHMETIC * float(spectrum[0]), CLEAR_GAP)):
        ratios = torch.where(following <= max(limit, tolerance * parts.edge), spectrum[:above] / following, 0.0)
        widest = int(ratios.argmax())
        if float(ratios[widest]) >= least:
            return widest + 1
    return None


def _tolerance(noise: float, layer: FirstLayer) -> float:
    """Return up to which multiple of the edge of independent noise a singular value looks like noise."""
    return LIKE_ROUNDING if _relative_noise(noise, layer) < SMALL_ROUNDING else LIKE_NOISE


def _following(spectrum: Tensor, rank: int) -> float:
    return float(spectrum[rank]) if rank < len(spectrum) else 0.0


def _has_distinct_units(rows: Float[Tensor, "rank unit"]) -> bool:
    """Return whether units respond in clearly more ways than there are directions.

    Units that respond alike have parallel columns, and a matrix with few distinct columns has no higher rank. ``r``
    inputs open at most ``2^r − 1`` sets of gates.
    """
    norms = rows.norm(dim=0)
    columns = rows[:, norms > 0] / norms[norms > 0]
    needed = min(UNITS_PER_DIRECTION * len(rows), 2 ** min(len(rows), 30) - 1)
    for _ in range(needed - 1):
        if columns.shape[1] == 0:
            return False
        columns = columns[:, (columns[:, 0] @ columns).abs() < SAME_RESPONSE]
    return bool(columns.shape[1])


def _relative_noise(noise: float, layer: FirstLayer) -> float:
    """Return noise relative to the size of what was rounded: an initial weight, or an entry of a gradient.

    Huge where the initial weights are zero.
    """
    rounded = layer.before if layer.evidence.kind == "weight change" else layer.measured
    size = float(rounded.pow(2).mean().sqrt())
    return noise / max(size, torch.finfo(torch.float64).tiny)


def noise_floor(spectrum: Float[Tensor, " value"], shape: tuple[int, ...]) -> float:
    """Estimate the standard deviation per entry of a matrix's noise from its small singular values.

    The lowest quarter of them is noise when the rank of the signal is below three quarters of the smaller side. The law
    of Marchenko and Pastur says where their median (the lower eighth of all) lies for unit noise.
    """
    small, large = min(shape), max(shape)
    if small == 0:  # nothing changed
        return 0.0
    ratio = small / large
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    grid = torch.linspace(low, high, 20_001, dtype=torch.float64)[1:-1]
    density = ((high - grid) * (grid - low)).sqrt() / grid
    cumulative = density.cumsum(0) / density.sum()
    lower_eighth = float((grid[int(torch.searchsorted(cumulative, 0.125))] * large).sqrt())
    return float(spectrum[small - 1 - small // 8]) / lower_eighth


def noise_edge(noise: float, shape: tuple[int, ...]) -> float:
    """Return the largest singular value of a matrix of this shape that holds only noise of this size per entry."""
    return noise * (math.sqrt(min(shape)) + math.sqrt(max(shape)))


def weight_decay_factor(layer: FirstLayer) -> float:
    """Estimate ``c`` in ``measured = c·reference + (a matrix of low rank)``.

    The pencil ``measured − λ·reference`` loses rank at ``λ = c``, so ``c`` is an eigenvalue of multiplicity equal to
    the number of directions that training left untouched: the densest cluster of eigenvalues.
    """
    units, values = layer.reference.shape
    size = min(units, layer.input_size, PENCIL_SIZE)  # without the bias: one that starts at zero adds no rank
    generator = torch.Generator().manual_seed(0)
    # A random compression preserves the loss of rank and makes the eigenvalue problem small.
    left = torch.randn(size, units, generator=generator, dtype=torch.float64).to(layer.reference.device)
    right = torch.randn(values, size, generator=generator, dtype=torch.float64).to(layer.reference.device)
    reference, measured = left @ layer.reference @ right, left @ layer.measured @ right
    # Eigenvalues are of order one for weights; those of a gradient are brought there.
    scale = 1.0 if layer.evidence.kind == "weight change" else _norm_ratio(measured, reference)
    pencil, is_singular = torch.linalg.solve_ex(reference, measured / scale)
    if bool(is_singular) or not bool(pencil.isfinite().all()):  # a reference of zero, of which decay leaves nothing
        return layer.evidence.factor
    eigenvalues = torch.linalg.eigvals(pencil).cpu()
    real = eigenvalues.real[eigenvalues.imag.abs() < 1e-2].sort().values
    if len(real) < 8:
        return layer.evidence.factor
    cluster = max(4, len(real) // 8)
    spans = real[cluster:] - real[:-cluster]
    densest = int(spans.argmin())
    factor, unchanged = scale * float(real[densest : densest + cluster].median()), layer.evidence.factor
    return factor if abs(factor - unchanged) > DECAY_PRECISION * scale else unchanged


def _norm_ratio(one: Tensor, other: Tensor) -> float:
    tiny = torch.finfo(torch.float64).tiny
    return max(float(one.norm()), tiny) / max(float(other.norm()), tiny)
