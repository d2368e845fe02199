"""The row problem: find the vectors of a layer's row space that belong to single training inputs.

The change of a layer is ``Z = Σ_i [x_i; 1] γ_iᵀ``. Its singular vectors span the inputs (``basis``) and their effects
(``rows``). A *row* here is one effect ``γ_i`` in coordinates of the row space.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.gates.rules import CertificateRules, SearchRules
from exhume.attacks.gates.shared_part import read_out_linearly
from exhume.clues.first_layer import Signals
from exhume.clues.subspace import CLEAR_GAP, LIKE_ROUNDING, InputSubspace, noise_edge

JUDGED_VALUES = 256
"""Largest number of values of an input by which a search judges whether it lies in the range."""


@dataclass(frozen=True, kw_only=True)
class RowProblem:
    """The row space on informative units, the weights of the gates, and the rules of the search."""

    rows: Float[Tensor, "rank unit"]
    basis: Float[Tensor, "value rank"]
    strengths: Float[Tensor, " rank"]
    before: Float[Tensor, "unit value"]
    after: Float[Tensor, "unit value"]
    informative: Float[Tensor, " unit"]
    """1 for a unit that some input moved, 0 for a silent one."""
    noise: float
    """Standard deviation of the noise per entry of the change."""
    unexplained: float = 0.0
    """Largest singular value of the change beyond its rank, less what noise of this size makes."""
    hidden: Float[Tensor, "direction unit"] | None = None
    """Orthonormal directions beyond the rank that are larger than noise, on all units; None where there are none."""
    has_bias: bool
    gates_are_exact: bool = False
    """Whether all gradients were taken at the given weights, so that no unit that is off ever fired."""
    has_exact_signals: bool = True
    """Whether the layers above do the same in every pass: no dropout, no normalisation by batches."""
    forms: Float[Tensor, "form rank rank"] | None = None
    """Sums of squared gradients of units, as quadratic forms in coordinates of the basis; None where not known. The row
    ``u`` of an input that never fired a unit has ``Q (u / strengths) = 0``."""
    current: Float[Tensor, " unit"] | None = None
    """1 for a unit whose change was made by the gates at hand; 0 for one of a sum of squares, which also remembers
    gates of long ago. None: all are current."""
    blocks: int = 1
    """Number of gradients, at weights of their own, whose units stand side by side."""
    ends: Float[Tensor, "bound rank"] | None = None
    """Directions whose products with an input are the distances of its values from the lower ends of their range, then
    from the upper ends, as fractions of it; None: it is unknown."""
    signals: tuple[Signals, ...]
    """Functions from pre-activations to backward signals, at the initial and the final weights."""
    rounding: float = 0.0
    """Least pre-activation whose sign float32 tells, relative to the norms of the input and the unit."""
    certificate: CertificateRules = field(default_factory=CertificateRules)
    search: SearchRules = field(default_factory=SearchRules)

    @property
    def rank(self) -> int:
        """The dimension of the row space."""
        return len(self.rows)

    @property
    def units(self) -> int:
        """The number of informative units."""
        return int(self.informative.sum())

    @cached_property
    def deviations(self) -> float:
        """How many standard deviations noise exceeds in no entry that is tested, except with the error rate.

        A search tests about as many candidates per row as a round has inputs, each on all units.
        """
        return self.certificate.deviations(self.search.seeds * self.rank * self.units)

    @property
    def gated(self) -> Float[Tensor, " unit"]:
        """1 for an informative unit whose gates at hand say when its entry is not zero."""
        return self.informative if self.current is None else self.informative * self.current

    @property
    def has_known_values(self) -> bool:
        """Whether the values of a row follow from its input, up to one number per output."""
        return self.gates_are_exact and self.has_exact_signals

    @property
    def silent(self) -> Float[Tensor, " unit"]:
        """1 for a unit that is off on all inputs, which says where inputs lie and nothing about rows."""
        return 1 - self.informative

    @cached_property
    def is_local(self) -> bool:
        """Whether all gradients are taken to be at the same weights: one gradient, or the state of an optimiser."""
        return torch.equal(self.before, self.after)

    @cached_property
    def readout(self) -> Float[Tensor, "output unit"] | None:
        """The output weights of the units in one gradient below a linear output layer; None elsewhere."""
        is_known = self.has_known_values and self.blocks == 1
        return read_out_linearly(self.signals[-1], len(self.after), self.after) if is_known else None

    @property
    def change(self) -> Float[Tensor, "value rank"]:
        """The change ``Z`` in coordinates of the row space."""
        return self.basis * self.strengths

    @property
    def gate_weights(self) -> Float[Tensor, "gate value"]:
        """The weights of all units before training, then after it: two gates per unit."""
        return torch.cat([self.before, self.after])

    @cached_property
    def gates(self) -> tuple[Float[Tensor, "unit rank"], Float[Tensor, "unit rank"]]:
        """The weights before and after training, in the coordinates of the inputs."""
        return self.before @ self.basis, self.after @ self.basis

    @cached_property
    def box(self) -> Float[Tensor, "bound rank"] | None:
        """Directions whose products with an input are positive if its values lie in their range, with some slack.

        Some of many values stand for all. None where the range is unknown.
        """
        if self.ends is None:
            return None
        values = len(self.ends) // 2
        chosen = torch.linspace(0, values - 1, min(values, JUDGED_VALUES), device=self.ends.device).long()
        return self.ends[torch.cat([chosen, chosen + values])] + self.certificate.precision * self.basis[-1]

    @cached_property
    def halfspaces(self) -> Float[Tensor, "halfspace rank"]:
        """All that an input is judged by: the gates before training, those after it, and the range of values."""
        return torch.cat([*self.gates, *([] if self.box is None else [self.box])])

    @cached_property
    def features(self) -> Float[Tensor, "gate rank"]:
        """The gates scaled to norm one: all units before training, then all after it."""
        both = torch.cat(self.gates)
        size: Tensor = both.norm(dim=1, keepdim=True)
        return both / size.clamp(min=1e-300)

    @cached_property
    def movement(self) -> Float[Tensor, " unit"]:
        """How far each unit moved."""
        moved: Tensor = (self.strengths[:, None] * self.rows).norm(dim=0)
        return moved

    @cached_property
    def directions(self) -> Float[Tensor, "rank unit"]:
        """The entries of each unit, scaled to norm one; zero for silent units."""
        length: Tensor = self.rows.norm(dim=0)
        return self.informative * self.rows / length.clamp(min=1e-300)

    def normalise(self, rows: Float[Tensor, "candidate rank"]) -> Float[Tensor, "candidate unit"]:
        """Return rows on all units, scaled to a root mean square of 1 over the informative ones."""
        full = rows @ self.rows
        size: Tensor = full.norm(dim=1, keepdim=True)
        return full * (math.sqrt(self.units) / size)

    def noise_width(self, rows: Float[Tensor, "candidate rank"]) -> Float[Tensor, " candidate"]:
        """Return the standard deviation of the noise in an entry of each normalised row.

        At least what float64 leaves of a row that is found from a Gram matrix: one rounding per term of its sums.
        """
        length = rows if self.forms is None else rows @ self.rows  # sums of squares add units to orthonormal rows
        amplified: Tensor = (rows / self.strengths).norm(dim=1) / length.norm(dim=1)
        return (amplified * (self.noise * math.sqrt(self.units))).clamp(
            min=torch.finfo(rows.dtype).eps * self.units * self.rank
        )

    def orient(self, inputs: Float[Tensor, "candidate value"]) -> Float[Tensor, "candidate value"]:
        """Choose the sign that makes the constant last value positive; without a bias the sign is unknown."""
        if not self.has_bias:
            return inputs
        return torch.where(inputs[:, -1:] < 0, -inputs, inputs)


def pose_problem(
    subspace: InputSubspace,
    signals: tuple[Signals, ...],
    *,
    has_exact_signals: bool = True,
    ends: Float[Tensor, "bound rank"] | None = None,
    certificate: CertificateRules | None = None,
) -> RowProblem:
    """Set up the row problem of a subspace."""
    certificate = certificate or CertificateRules()
    layer = subspace.layer
    moved = layer.change.norm(dim=0)
    noise = subspace.noise * layer.change.shape[0] ** 0.5
    is_informative = moved > certificate.deviations(layer.change.numel()) * noise
    rows = subspace.rows * is_informative
    beyond = float(subspace.spectrum[subspace.rank]) if subspace.rank < len(subspace.spectrum) else 0.0
    return RowProblem(
        rows=rows,
        basis=subspace.basis,
        strengths=subspace.strengths,
        before=layer.before,
        after=layer.after,
        informative=is_informative.to(rows.dtype),
        noise=subspace.noise,
        unexplained=max(0.0, beyond - noise_edge(subspace.noise, tuple(layer.change.shape))),
        hidden=find_hidden(subspace),
        has_bias=layer.has_bias,
        gates_are_exact=layer.evidence.is_local and layer.evidence.kind != "optimiser state",
        has_exact_signals=has_exact_signals,
        blocks=1 + len(layer.evidence.others),
        ends=ends,
        signals=signals,
        rounding=torch.finfo(torch.float32).eps * math.sqrt(layer.before.shape[1]),  # errors of a sum add up by chance
        certificate=certificate,
    )


def find_hidden(subspace: InputSubspace) -> Float[Tensor, "direction unit"] | None:
    """Return the effects of what is too small for the rank and too large for noise; None where there is nothing.

    The difference of two nearly equal inputs with nearly equal effects is of this kind. Rounding in a training that
    nearly diverged can be as large, but has no gap of its own to the smaller singular values.
    """
    beyond = subspace.spectrum[subspace.rank :]
    is_last = (beyond[:-1] > LIKE_ROUNDING * subspace.edge) & (beyond[:-1] >= CLEAR_GAP * beyond[1:])
    if not bool(is_last.any()):
        return None
    rest = subspace.layer.change - subspace.basis @ (subspace.strengths[:, None] * subspace.rows)
    effects: Tensor = torch.linalg.svd(rest, full_matrices=False).Vh
    return effects[: int(is_last.nonzero()[-1]) + 1]
