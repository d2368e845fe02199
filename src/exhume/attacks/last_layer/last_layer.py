"""Features of the last linear layer, exactly, from one gradient of fewer examples than classes."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional

from exhume.attacks.attack import Attack
from exhume.attacks.last_layer.consistency import LastLayerProblem, Solution, error_bounds, refine, start_from
from exhume.attacks.last_layer.corners import find_corners
from exhume.clues.evidence import find_evidence
from exhume.clues.first_layer import FirstLayer, read_layer
from exhume.clues.frozen_statistics import computes_as_released
from exhume.clues.subspace import noise_edge
from exhume.core.errors import Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.core.text import count_noun
from exhume.inversion.through_trunk import are_non_negative, invert_features
from exhume.models.structure import trained_steps
from exhume.records import AttackerView, Outcome, Reconstruction

LEAST_HEIGHT = 20.0
"""Least ratio of a singular value of the gradient to the largest that rounding makes, for it to count an example."""
SPARE_EQUATIONS = 16
"""Number of equations beyond the unknowns that must hold, as for inputs that features determine."""
MOST_GUESSES = 12
"""Number of guesses about the labels of a batch."""
PRECISION = 0.02
"""Largest error of a certified feature, relative to the largest feature of its example."""


@settings
class LastLayer(Attack):
    """Recover the features of a batch from the gradient of the output layer, then the inputs that have them.

    The gradient has one row per class, each a mixture of all features. With fewer examples than classes the features
    lie in its row space, and only the right ones predict the gradient through the softmax
    (:mod:`exhume.attacks.last_layer.consistency`). A feature is exact where its class has one example in the batch, or
    where the network predicts different probabilities for the examples of a class.
    """

    starts: PositiveInt = 24
    """Number of random starting points of the search for features."""
    steps: PositiveInt = 100
    """Largest number of Gauss–Newton steps per starting point."""
    largest_batch: PositiveInt = 64
    """Largest number of examples; time grows with its sixth power."""
    descents: PositiveInt = 25
    """Largest number of descents in the search for the inputs that have the features."""

    def check(self, view: AttackerView) -> None:
        """Refuse views without one gradient of an output layer with a bias above non-negative features."""
        read_last_layer(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Solve for the features, certify what the equations determine, and invert the layers below."""
        layer = read_last_layer(view)
        gradient = layer.change.T * (1.0 if layer.evidence.kind == "gradient" else -1.0)
        noise = _noise(layer)
        left, strengths, rows = torch.linalg.svd(gradient, full_matrices=False)
        rank = int((strengths > LEAST_HEIGHT * noise_edge(noise, tuple(gradient.shape))).sum())
        about = {"layer": layer.name, "evidence": layer.evidence.kind, "training_size_estimate": rank}
        if not 1 <= rank < len(gradient) or rank > self.largest_batch:
            return _nothing(layer, about, _why_not(rank, len(gradient), self.largest_batch))
        problem = LastLayerProblem(
            mixtures=left[:, :rank] * strengths[:rank],
            logits=layer.before @ rows[:rank].T,
            constant=rows[:rank, -1],
            noise=noise,
        )
        is_present = (gradient[:, :-1] < -LEAST_HEIGHT * noise).any(dim=1) | (gradient[:, -1] < -LEAST_HEIGHT * noise)
        best = None
        usual = torch.softmax(layer.before[:, -1], dim=0)
        starting = self._starts(problem, rows[:rank], is_present, gradient[:, -1], usual, context)
        for done, start in enumerate(starting):
            context.report("recover", done, self.starts)
            found = refine(problem, start, self.steps)
            best = found if best is None or found.residual < best.residual else best
            if best.residual < problem.tolerance:
                break
        if best is None or best.residual > problem.tolerance:
            reason = (
                "No features explain the gradient through the softmax. The batch has as many examples as classes or "
                "more, or the loss is not the mean cross-entropy."
            )
            return _nothing(layer, about, reason)
        result = self._result(layer, problem, best, rows[:rank], about)
        if layer.reads_input:
            return replace(result, inputs=view.to_pixels(result.inputs))
        return invert_features(
            view,
            layer.name,
            layer.evidence.after,
            result,
            context,
            descents=self.descents,
            as_released=computes_as_released(view, layer.name, layer.evidence),
        )

    def _starts(
        self,
        problem: LastLayerProblem,
        rows: Float[Tensor, "rank value"],
        is_present: Bool[Tensor, " output"],
        bias: Float[Tensor, " output"],
        usual: Float[Tensor, " output"],
        context: RunContext,
    ) -> Iterator[Solution]:
        """Yield starting points: nearly equal predictions, corners of the features' cone, then random predictions."""
        rank, outputs = problem.rank, len(is_present)
        guesses = _guess_labels(is_present, bias, usual, rank)
        for labels in guesses[:1]:
            yield self._usual_start(problem, labels, usual, context)
        corners = find_corners(rows[:, :-1], problem.constant, context.generator)
        if len(corners) == rank:
            mixing = problem.mixtures @ torch.linalg.pinv(corners)
            labels = functional.one_hot(mixing.argmin(dim=0), outputs).to(bias)
            yield Solution(codes=corners, labels=labels, scale=1 / rank, residual=float("inf"))
        for labels in guesses[1:]:
            yield self._usual_start(problem, labels, usual, context)
        for _ in range(self.starts if guesses else 0):
            labels = guesses[0]
            missed = (-rank * (labels @ bias)).clamp(1e-4, 0.99)[:, None]
            noise = torch.randn(rank, outputs, generator=context.generator).to(bias)
            others = functional.normalize(torch.softmax(2 * noise, dim=1) * (1 - labels), p=1.0)
            yield start_from(problem, labels, (1 - missed) * labels + missed * others, 1 / rank)

    def _usual_start(
        self,
        problem: LastLayerProblem,
        labels: Float[Tensor, "example output"],
        usual: Float[Tensor, " output"],
        context: RunContext,
    ) -> Solution:
        """Return the features that would explain the gradient if all examples had the usual predictions."""
        # Two examples of one class with the same predictions would stay the same.
        jitter = torch.rand(labels.shape, generator=context.generator).to(usual)
        jitter = 1 + 0.1 * jitter * (labels.sum(dim=0) > 1).any()
        return start_from(problem, labels, functional.normalize(jitter * usual, p=1.0), 1 / problem.rank)

    def _result(
        self,
        layer: FirstLayer,
        problem: LastLayerProblem,
        solution: Solution,
        rows: Float[Tensor, "rank value"],
        about: dict[str, object],
    ) -> Reconstruction:
        features = (solution.codes @ rows)[:, :-1]
        bounds = error_bounds(problem, solution)
        size = features.amax(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        is_precise = bounds <= PRECISION * size
        is_inside = (features >= -(bounds + 1e-3 * size)[:, None]).all(dim=1)
        is_backed = _spare_equations(problem, features, bounds, size) >= SPARE_EQUATIONS
        certified = is_precise & is_inside & is_backed
        doubts = [
            "" if sure else _doubt(precise, inside)
            for sure, precise, inside in zip(certified.tolist(), is_precise.tolist(), is_inside.tolist(), strict=True)
        ]
        count, rank = int(certified.sum()), problem.rank
        outcome = Outcome.PARTIAL if count else Outcome.NOTHING_FOUND
        return Reconstruction(
            inputs=features.float(),
            certified=certified,
            confidence=(PRECISION * size / (PRECISION * size + bounds)).float(),
            outcome=Outcome.CERTIFIED if count == rank else outcome,
            message=f"The features of {count} of {count_noun(rank, 'training input')} are certified.",
            diagnostics={
                **about,
                "training_size_is_clear": count == rank,
                "training_size_doubt": "" if count == rank else "not every feature is certified",
                "labels": solution.labels.argmax(dim=1).tolist(),
                "error_bounds": bounds.tolist(),
                "doubts": doubts,
                "residual": solution.residual,
            },
        )


def read_last_layer(view: AttackerView) -> FirstLayer:
    """Read the gradient of the output layer off a view.

    Raises:
        Refusal: when the view holds no single gradient of an output layer that this attack can use.
    """
    loss = view.training.loss
    if loss not in (None, "ce"):
        raise Refusal(f"This attack needs a network trained with cross-entropy, and this one was trained with {loss}.")
    local = [e for e in find_evidence(view) if e.is_local and e.kind != "optimiser state"]
    if not local:
        raise Refusal("This attack needs one gradient, or the weight change of a single step.")
    changed = local[0].trained()
    steps = trained_steps(view.model, changed)
    step, following = steps[-1] if steps else (None, None)
    if step is None or step.layer is None or following is not None:
        raise Refusal("This attack needs a linear layer at the end of the network, whose gradient is known.")
    if step.layer.bias is None or not {step.layer.weight, step.layer.bias} <= changed:
        raise Refusal(f"This attack needs the gradient of the weights and the bias of the last layer, {step.name!r}.")
    if step.layer.units < 3:
        raise Refusal("This attack needs at least three classes: with fewer, the gradient shows one mixture alone.")
    if sum(other.name == step.name for other, _ in steps) > 1:
        raise Refusal(f"The last layer, {step.name!r}, is used more than once.")
    if not are_non_negative(view, step.name, local[0].after):
        raise Refusal(f"This attack needs features that are never negative, and layer {step.name!r} reads others.")
    return read_layer(view, local[0], step, following, changed)


def _noise(layer: FirstLayer) -> float:
    """Return the standard deviation of rounding in an entry of the gradient."""
    if layer.evidence.kind == "gradient":
        return layer.rounding
    kinds = {weight.dtype for weight in layer.evidence.measured.values() if weight.is_floating_point()}
    return max(torch.finfo(kind).eps for kind in kinds) * float(layer.before.square().mean().sqrt())


def _guess_labels(
    is_present: Bool[Tensor, " output"], bias: Float[Tensor, " output"], usual: Float[Tensor, " output"], count: int
) -> list[Float[Tensor, "example output"]]:
    """Return one-hot labels: each class whose gradient has a negative entry, and further ones, new classes first.

    A class without one may be there as well, where the network is so certain of its example that the others outweigh
    it. With the predictions ``usual``, a class with ``n`` of ``N`` examples has the bias gradient ``usual − n/N``.
    """
    present = is_present.nonzero()[:, 0].tolist()
    if len(present) > count:
        return []
    expected = (count * (usual - bias)).tolist()

    def order(further: tuple[int, ...]) -> tuple[bool, float]:
        labels = [*present, *further]
        misfit = sum(((expected[label] - labels.count(label)) ** 2 for label in range(len(bias))), 0.0)
        return len(set(labels)) < count, misfit

    missing = count - len(present)
    choices = (
        list(itertools.combinations_with_replacement(range(len(bias)), missing))
        if missing <= 2
        else [_greedily(expected, present, missing)]
    )
    return [
        functional.one_hot(torch.tensor(sorted([*present, *further]), device=bias.device), len(bias)).to(bias)
        for further in sorted(choices, key=order)[:MOST_GUESSES]
    ]


def _greedily(expected: list[float], present: list[int], missing: int) -> tuple[int, ...]:
    """Return the classes that lack most of their expected examples."""
    labels = list(present)
    for _ in range(missing):
        labels.append(max(range(len(expected)), key=lambda label: expected[label] - labels.count(label)))
    return tuple(labels[len(present) :])


def _spare_equations(
    problem: LastLayerProblem, features: Tensor, bounds: Float[Tensor, " example"], size: Float[Tensor, " example"]
) -> int:
    """Count the equations that hold beyond the unknowns, exact zeros among the features included.

    ``rank − 1`` values of a combination of the rows can always be made zero.
    """
    rank, outputs = problem.rank, len(problem.mixtures)
    zeros = ((features.abs() <= bounds[:, None]) & (bounds < 1e-3 * size)[:, None]).sum(dim=1)
    return rank * (outputs - 1) + rank - (rank**2 + 1) + int((zeros - (rank - 1)).clamp(min=0).sum())


def _doubt(is_precise: bool, is_inside: bool) -> str:
    if not is_precise:
        return "the gradient does not separate it from another example of its class"
    return "too few equations are left to prove it" if is_inside else "it is negative, and features are not"


def _why_not(rank: int, outputs: int, largest: int) -> str:
    if rank == 0:
        return "The gradient of the last layer is not larger than rounding."
    if rank > largest:
        return f"The batch has at least {rank} examples, more than largest_batch = {largest}."
    return (
        f"The gradient of the last layer has rank {rank} of {outputs}: there are as many examples as classes or more."
    )


def _nothing(layer: FirstLayer, about: dict[str, object], message: str) -> Reconstruction:
    none = torch.zeros(0)
    return Reconstruction(
        inputs=torch.zeros(0, layer.input_size),
        certified=none.bool(),
        confidence=none,
        outcome=Outcome.NOTHING_FOUND,
        message=message,
        diagnostics={**about, "training_size_is_clear": False, "training_size_doubt": "the number is a lower bound"},
    )
