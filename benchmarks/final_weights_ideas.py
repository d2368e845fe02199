"""Ideas for ``MaxMargin`` that were tried on the same weights, as experimental variations of its problem.

:mod:`final_weights_ablation` measures them. What they have in common: extra raw variables per candidate follow those of
the multipliers, so that the search, its settings and its choice of runs stay those of the attack.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn.functional import one_hot, pad, softplus

from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.stationarity.multipliers import MarginMultipliers, Multipliers
from exhume.attacks.stationarity.problem import StationarityProblem
from exhume.attacks.stationarity.runs import minimise_runs
from exhume.clues.subspace import noise_floor
from exhume.core.settings import settings
from exhume.gradient_sums.interface import GradientSums
from exhume.gradient_sums.sums import WeightedSums

MOMENTS = (0.2, 0.4, 0.6)
"""Fractions of the steps at which labels and multipliers are estimated again."""


def margin_of(outputs: Tensor, labels: Tensor, soft: bool) -> Tensor:
    """Return the gradient of each margin by the outputs, for labels of one run or of each."""
    if outputs.shape[-1] == 1:
        return (2 * labels[..., None] - 1).to(outputs)
    own = one_hot(labels, outputs.shape[-1]).to(outputs)
    others = outputs.masked_fill(own.bool(), -torch.inf)
    return own - (others.softmax(-1) if soft else one_hot(others.argmax(-1), outputs.shape[-1]).to(outputs))


@dataclass(frozen=True)
class VariedMultipliers(MarginMultipliers):
    """Multipliers in the first columns of the raw variables, and what a variant adds to them in the others."""

    form: str = "one"
    extra: int = 0
    warm: float = 0.0
    clock: dict[str, int] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        """Factor of the outputs whose softmax divides a margin among rivals: it rises to 1."""
        return min(1.0, self.clock.get("call", 0) / (self.warm * self.clock["steps"])) if self.warm else 1.0

    @property
    def columns(self) -> int:
        """Number of columns that are multipliers."""
        return max(2, self.outputs) if self.form in ("all", "classes") else 1

    def shape(self, candidates: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of one row per candidate."""
        return (candidates, self.columns + self.extra)

    def directions(self, network: Any, inputs: Tensor, raw: Tensor) -> Tensor:
        """Return the dual that each multiplier adds, (..., candidate, column, output)."""
        labels = raw[..., 1].round().long() if self.extra == 1 else self.labels
        outputs = network(inputs)
        if self.form == "all":
            own = one_hot(self.labels, self.outputs).to(raw)
            return (own[:, None] - torch.eye(self.outputs).to(raw)) / (self.outputs - 1)
        if self.form == "classes":
            each = torch.arange(self.columns).expand(*outputs.shape[:-1], self.columns)
            return margin_of(outputs[..., None, :].expand(*each.shape, -1), each, False) / self.columns
        return margin_of(outputs, labels, self.form == "soft")[..., None, :]

    def duals(self, network: Any, inputs: Tensor, raw: Tensor) -> Any:
        """Return the sum of what the multipliers add; directions count as constant."""
        if self.form == "exact":
            factor = self.temperature
            self.clock["call"] = self.clock.get("call", 0) + 1
            slopes, back = torch.func.vjp(lambda at: margin_of(factor * network(at), self.labels, True), inputs)
            return raw * slopes, lambda gradient: (back(raw * gradient)[0], (gradient * slopes).sum(-1, keepdim=True))
        directions, lead = self.directions(network, inputs, raw), raw[..., : self.columns]

        def pull(gradient: Tensor) -> tuple[None, Tensor]:
            own = (gradient[..., None, :] * directions).sum(-1)
            return None, pad(own, (0, self.extra))

        return (lead[..., None] * directions).sum(-2), pull

    def penalty(self, raw: Tensor, floor: Tensor) -> Any:
        """Penalise a mean multiplier below the floor, and each below zero."""
        lead = raw[..., : self.columns]
        short = (floor[..., None] - lead.mean(-1)).relu()
        below = (-lead).relu() if self.columns > 1 else torch.zeros_like(lead)
        slope = -2 * short[..., None] / self.columns - 2 * below
        value = short.square().sum(-1) + below.square().sum((-2, -1))
        return value, pad(slope, (0, self.extra))

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw multipliers uniformly, and set what is fitted besides to zero."""
        raw = torch.zeros(shape)
        raw[..., : self.columns] = torch.rand(*shape[:-1], self.columns, generator=generator)
        if self.extra == 1:
            raw[..., 1] = self.labels.to(raw)
        return raw


@dataclass(frozen=True, kw_only=True)
class MomentProblem(StationarityProblem):
    """Estimate labels or multipliers again at a few moments; the second raw column holds the label."""

    relabel: bool
    resolve: bool
    clock: dict[str, int] = field(default_factory=dict)

    def objective(self, free: Tensor, raw: Tensor, sharpness: Any, floor: Tensor) -> Any:
        """Estimate first, where it is time, and return the value and its gradients."""
        if self.clock["call"] in [round(moment * self.clock["steps"]) for moment in MOMENTS]:
            for run in range(len(free)):
                self._estimate(free[run], raw[run], sharpness[run])
        self.clock["call"] += 1
        return super().objective(free, raw, sharpness, floor)

    def _estimate(self, free: Tensor, raw: Tensor, sharpness: Tensor) -> None:
        inputs, count = self.arguments(free), len(free)
        classes = max(2, self.multipliers.outputs)  # type: ignore[attr-defined]
        each = torch.arange(classes).expand(count, classes)
        outputs = self._network(inputs)[:, None].expand(count, classes, -1)
        duals = self.unit * margin_of(outputs, each, False).flatten(0, 1)
        parts = self.sums(inputs.repeat_interleave(classes, 0)[:, None], duals[None, :, None], sharpness)[0]
        columns = torch.cat([part.flatten(1) for part in parts], 1).double()
        wanted = torch.cat([part.flatten() for part in self.target]).double()
        own = torch.arange(count) * classes + raw[:, 1].round().long()
        if self.relabel:
            left = wanted - raw[:, 0].double() @ columns[own]
            without = columns @ left
            overlap = torch.einsum("jcp,jp->jc", columns.reshape(count, classes, -1), columns[own]).flatten()
            without += raw[:, 0].double().repeat_interleave(classes) * overlap
            gain = without.relu().square() / columns.square().sum(1).clamp(min=1e-300)
            raw[:, 1] = gain.reshape(count, classes).argmax(1).to(raw)
            own = torch.arange(count) * classes + raw[:, 1].round().long()
        if self.resolve:
            gram = columns[own] @ columns[own].T
            gram += 1e-6 * gram.diagonal().mean() * torch.eye(count)
            factor = torch.linalg.cholesky(gram)
            goal = torch.linalg.solve_triangular(factor, (columns[own] @ wanted)[:, None], upper=False)[:, 0]
            raw[:, 0] = torch.from_numpy(nnls(factor.T.numpy(), goal.numpy())[0]).to(raw)


@dataclass(frozen=True, kw_only=True)
class GateProblem(StationarityProblem):
    """Fit the gates of the first layer too; the raw columns after the first are their shifts or log-sharpness."""

    gates: str
    strength: float

    def shifts(self, raw: Tensor) -> Tensor:
        """Return the fitted values, per unit and candidate or per unit."""
        own = raw[..., self.multipliers.columns :]  # type: ignore[attr-defined]
        return own if self.gates == "candidate" else own.mean(-2, keepdim=True)

    def squared(self, free: Tensor, raw: Tensor, sharpness: Tensor) -> Tensor:
        """Return the squared residual per run."""
        dense, factors = self.sums, [1.0] * len(self.target)
        if isinstance(dense, WeightedSums):
            dense, factors = dense.whole, list(dense.factors)
        weights = [weight[0] for weight in dense.weights]  # type: ignore[attr-defined]
        bias = dense.biases[0][0]  # type: ignore[attr-defined]
        values, slopes, sharp = [self.arguments(free)], [], sharpness[:, None, None]
        shifts = self.shifts(raw)
        for layer, weight in enumerate(weights[:-1]):
            scaled = sharp * (values[-1] @ weight.T + (bias if layer == 0 else 0))
            if layer == 0:
                gate = (scaled * shifts.exp() if self.gates == "sharpness" else scaled + shifts).sigmoid()
            slopes.append(gate if layer == 0 else scaled.sigmoid())
            smooth = softplus(scaled)  # its derivative is the gate; the value is exact
            values.append((smooth + (scaled.relu() - smooth).detach()) / sharp)
        signals = [self.duals(free, raw)]
        for layer in reversed(range(len(slopes))):
            signals.insert(0, (signals[0] @ weights[layer + 1]) * slopes[layer])
        sums = [signal.mT @ value for signal, value in zip(signals, values, strict=True)]
        sums.insert(1, signals[0].sum(-2))
        parts = zip(factors, sums, self.target, strict=True)
        return torch.stack([(f * s - t).square().flatten(1).sum(1) for f, s, t in parts]).sum(0)

    def objective(self, free: Tensor, raw: Tensor, sharpness: Any, floor: Tensor) -> Any:
        """Return the value with the penalty on the gates, and its gradients by autograd."""
        free, raw = free.detach().requires_grad_(), raw.detach().requires_grad_()
        with torch.enable_grad():
            shifts = self.shifts(raw)
            value = self.squared(free, raw, sharpness) + self.strength * self.size * shifts.square().mean((-2, -1))
            to_free, to_raw = torch.autograd.grad(value.sum(), (free, raw))
        short, to_short = self.multipliers.penalty(raw.detach(), floor)
        value, to_raw = value.detach() + self.floor_weight * short, to_raw + self.floor_weight * to_short
        if (outside := self.box_penalty(free.detach())) is not None:
            value, to_free = value + outside[0], to_free + outside[1]
        return value, (to_free, to_raw)

    def residual(self, free: Tensor, raw: Tensor, sharpness: Any = None) -> Tensor:
        """Return the unexplained fraction with the fitted gates."""
        return self.squared(free, raw, sharpness) / self.size


@dataclass(frozen=True)
class FilteredSums(WeightedSums):
    """Sums seen through ``leftᵀ · sum · right`` per parameter; None: as they are."""

    views: tuple[tuple[Tensor, Tensor] | None, ...] = ()

    def look(self, values: Any, back: bool = False) -> Any:
        """Apply the views, or their adjoints."""
        pairs = zip(self.views, values, strict=True)
        return tuple(v if a is None else a[0] @ v @ a[1].T if back else a[0].T @ v @ a[1] for a, v in pairs)

    def __call__(self, inputs: Tensor, duals: Tensor, sharpness: Any = None) -> Any:
        """Return the sums as they are seen, and their pullback."""
        sums, pull = self.whole(inputs, duals, sharpness)
        return self.look(sums), lambda cotangents: pull(self.look(cotangents, back=True))

    def compact(self, target: Any, candidates: int) -> Any:
        """Return the target as it is."""
        return target

    def squared_residual(self, *values: Any, **named: Any) -> Any:
        """Return the squared residual of what is seen."""
        return GradientSums.squared_residual(self, *values, **named)


def without_noise(problem: StationarityProblem, filtered: bool) -> StationarityProblem:
    """Shrink the start's noise out of the upper layers (Gavish and Donoho 2017); ``filtered`` also weights residuals.

    The noise per entry comes from the small singular values of the second layer; the last started with the same.
    """
    target, views = list(problem.target), [None] * len(problem.target)
    noise = 0.0
    for place, matrix in enumerate(problem.target):
        if place == 0 or matrix.ndim < 2:
            continue
        left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
        noise = noise or noise_floor(values, tuple(matrix.shape))
        scale, ratio = noise * max(matrix.shape) ** 0.5, min(matrix.shape) / max(matrix.shape)
        ratios = values / scale
        inside = ((ratios**2 - ratio - 1) ** 2 - 4 * ratio).clamp(min=0).sqrt() / ratios
        shrunk = scale * torch.where(ratios > 1 + ratio**0.5, inside, torch.zeros_like(inside))
        kept = shrunk > 0
        root = (shrunk / values)[kept].sqrt()
        view = (left[:, kept] * root).to(matrix), (right[kept].T * root).to(matrix)
        clean = (left * shrunk @ right).to(matrix)
        target[place] = view[0].T @ clean @ view[1] if filtered else clean
        views[place] = view if filtered else None  # type: ignore[call-overload]
    sums = FilteredSums(problem.sums, (1.0,) * len(target), tuple(views)) if filtered else problem.sums
    cleaned = replace(problem, sums=sums, target=tuple(target))
    share = cleaned.size / problem.size
    return replace(cleaned, box_weight=share * problem.box_weight, floor_weight=share * problem.floor_weight)


@settings
class VariedMaxMargin(MaxMargin):
    """``MaxMargin`` with one idea."""

    form: str = "one"
    relabel: bool = False
    resolve: bool = False
    gates: str = ""
    strength: float = 0.0
    layers: str = ""
    warm: float = 0.0

    def multipliers(self, view: Any, candidates: int, span: Any) -> Multipliers:
        """Return the multipliers of the variant."""
        plain: Any = super().multipliers(view, candidates, span)
        width = len(view.final[next(iter(view.final))])
        extra = width if self.gates else 1 if self.relabel or self.resolve else 0
        if not extra and self.form == "one":
            return plain  # type: ignore[no-any-return]
        return VariedMultipliers(plain.labels, plain.outputs, self.form, extra, self.warm)

    def _problem(self, view: Any, candidates: int, span: Any, generator: Any) -> StationarityProblem:
        problem = super()._problem(view, candidates, span, generator)
        own = {name: getattr(problem, name) for name in problem.__dataclass_fields__}
        if self.relabel or self.resolve:
            return MomentProblem(**own, relabel=self.relabel, resolve=self.resolve)
        if self.gates:
            return GateProblem(**own, gates=self.gates, strength=self.strength)
        if self.layers in ("shrunk", "filtered"):
            problem = without_noise(problem, self.layers == "filtered").compacted(candidates)
            probes = torch.randn(16, view.input_size, generator=generator).to(problem.target[0])
            return problem.with_natural_unit(problem.space.project(self.init_std[1] * probes), candidates)
        return problem


def timed_runs(problem: Any, *values: Any, steps: int, **named: Any) -> Any:
    """Tell the problem where a round begins."""
    if hasattr(problem.multipliers, "clock"):
        problem.multipliers.clock.update(call=0, steps=steps)
    if isinstance(problem, MomentProblem):
        problem.clock.update(call=0, steps=steps)
    return minimise_runs(problem, *values, steps=steps, **named)
