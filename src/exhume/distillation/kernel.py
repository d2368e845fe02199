"""Distillation with the kernel of infinite width: one problem, two losses."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.core.run_context import RunContext
from exhume.distillation.distillation import Distillation, split_of
from exhume.distillation.losses import DistillationLoss, EmbeddingLoss, PredictionLoss
from exhume.kernels import JITTER, InfiniteNTK, solve_duals
from exhume.models.architecture import choose
from exhume.optimise import Adam, Decay, Variables, minimise
from exhume.records import Dataset, Outcome, Split
from exhume.training.losses import LOSSES, signed_or_centred

Labels = Literal["fixed", "learned"]
Precision = Literal["float32", "float64"]
Coordinates = Literal["values", "span"]

WIDE = InfiniteNTK()
RELEASED = InfiniteNTK(width=None, bias_gain=0.0)
"""What the released code of Loo et al. (2023) distils with: two hidden layers without biases in the NTK
parameterisation. Its networks have biases and the standard parameterisation, whose kernel is another."""


@dataclass(frozen=True, kw_only=True)
class KernelDistillation(Distillation):
    """Settings that KIP and RKIP share; a subclass says what to minimise."""

    kernel: InfiniteNTK = WIDE
    """Of the network that will be trained on the distilled set, in the limit of infinite width."""
    labels: Labels = "fixed"
    """``fixed`` gives each class its share of plain labels; ``learned`` optimises them with the inputs."""
    noise: float = 0.0
    """The fraction of each input's values that are drawn at random and stay so."""
    noise_std: float | None = None
    """Of such values around zero, in network units; None: anything in the value range is as likely."""
    min_distance: float | None = None
    """The least distance of a distilled input to any training input, in the units of a value; None: any."""
    steps: int = 3000
    learning_rate: float = 0.01
    decay: Decay = "cosine"
    coordinates: Coordinates = "values"
    """What the search moves: every value by itself, or coordinates in the span of the training inputs and the first
    guesses. No gradient leaves that span, so nothing is lost, and a step costs less where it is the smaller space; but
    Adam takes another path in it."""
    init_std: float = 0.2
    """The spread of the first guesses around zero, in network units."""
    jitter: float = JITTER
    precision: Precision = "float32"
    """Of kernels; linear systems are solved in float64 always."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("labels", self.labels, get_args(Labels))
        choose("decay", self.decay, get_args(Decay))
        choose("precision", self.precision, get_args(Precision))
        choose("coordinates", self.coordinates, get_args(Coordinates))
        if self.noise and self.coordinates == "span":
            raise ExhumeError("Values fixed to noise leave the span of the data; distil with coordinates='values'.")
        if not 0.0 <= self.noise < 1.0:
            raise ExhumeError(f"The fraction of noise must be from 0 to below 1, not {self.noise}.")
        if self.noise_std is not None and not 0.0 <= self.noise_std < math.inf:
            raise ExhumeError(f"The deviation of noise must be 0 or more, not {self.noise_std}.")
        if self.min_distance is not None and not 0.0 <= self.min_distance < math.inf:
            raise ExhumeError(f"A least distance must be 0 or more, not {self.min_distance}.")

    @abstractmethod
    def loss(
        self, inputs: Float[Tensor, "example value"], answers: Float[Tensor, "example output"]
    ) -> DistillationLoss:
        """Return what to minimise for training inputs and targets, both in float64."""

    @final
    def distilled(self, data: Dataset, context: RunContext, device: torch.device) -> Split:
        """Minimise the loss from noise."""
        dtype: torch.dtype = getattr(torch, self.precision)
        answers = LOSSES["mse"].targets(data, data.train).to(device).double()
        inputs = data.to_model(data.train.inputs).flatten(1).to(device).double()
        loss = self.loss(inputs, answers)
        labels = torch.arange(self.size) % max(2, len(data.classes))
        targets = signed_or_centred(labels, len(data.classes)).to(device).double()
        if targets.shape[1] != answers.shape[1]:
            raise ExhumeError(f"{data.name} has soft targets that its classes do not explain; distil plain labels.")
        start, is_free = self._start(data, context.generator)
        guesses = start.to(device).double()
        basis = span_of(torch.cat([inputs, guesses])) if self.coordinates == "span" else None
        problem = InducingPoints(
            kernel=self.kernel,
            loss=loss,
            examples=(inputs if basis is None else inputs @ basis.T).to(dtype),
            targets=targets,
            size=inputs.shape[1],
            is_free=None if is_free is None else is_free.to(device, dtype),
            min_distance=self.min_distance,
        )
        variables: Variables = ((guesses if basis is None else guesses @ basis.T).to(dtype),)
        # Steps of the same length, whether it is spread over many coordinates or few.
        rate = self.learning_rate * math.sqrt(inputs.shape[1] / variables[0].shape[1])
        if self.labels == "learned":
            variables = (*variables, targets)
        end = minimise(
            problem.objective,
            variables,
            Adam(steps=self.steps, learning_rates=(rate, self.learning_rate)[: len(variables)], decay=self.decay),
            scale=loss.scale,
            progress=context.report,
            stage="distil",
            checkpoint=context.saved("distillation", {"distillation": repr(self)}, *variables, inputs, answers),
        )
        if end.outcome is Outcome.DIVERGED:
            raise ExhumeError("The distillation left all bounds; lower the learning rate or raise the jitter.")
        made = end.variables[0] if self.min_distance is None else pushed_away(
            end.variables[0], problem.examples, self.min_distance, problem.is_free
        )  # fmt: skip
        if basis is not None:
            made = made.double() @ basis
        learned = self.labels == "learned"
        return split_of(data, made, end.variables[1] if learned else targets, soft=learned)

    def _start(
        self, data: Dataset, generator: torch.Generator
    ) -> tuple[Float[Tensor, "distilled value"], Bool[Tensor, "distilled value"] | None]:
        """Return the first guesses as flat network inputs, and which values may move (None: all)."""
        size = math.prod(data.input_shape)
        guesses = self.init_std * torch.randn(self.size, size, generator=generator)
        if self.noise == 0.0:
            return guesses, None
        fixed = torch.rand(self.size, size, generator=generator).argsort(1) < round(self.noise * size)
        return torch.where(fixed, self._noise(data, (self.size, size), generator), guesses), ~fixed

    def _noise(
        self, data: Dataset, shape: tuple[int, int], generator: torch.Generator
    ) -> Float[Tensor, "distilled value"]:
        """Draw flat network inputs that show nothing."""
        if self.noise_std is not None:
            return self.noise_std * torch.randn(shape, generator=generator)
        if data.bounds is None:
            noise = torch.randn(shape, generator=generator)
        else:
            low, high = data.bounds
            noise = low + (high - low) * torch.rand(shape, generator=generator)
        return data.to_model(noise.reshape(len(noise), *data.input_shape)).flatten(1)


@dataclass(frozen=True, kw_only=True)
class KIP(KernelDistillation):
    """Kernel inducing points: predict the training labels (Nguyen et al. 2021)."""

    @classmethod
    def published(cls, size: int = 20) -> "KIP":
        """Return the settings of Loo et al. (2023): 50 000 steps of Adam at 1e-3, their kernel, normal noise."""
        return cls(size=size, kernel=RELEASED, noise_std=1.0, steps=50_000, learning_rate=1e-3, decay="none")

    def loss(
        self, inputs: Float[Tensor, "example value"], answers: Float[Tensor, "example output"]
    ) -> DistillationLoss:
        """Return the mean square of wrong predictions."""
        return PredictionLoss(answers=answers, jitter=self.jitter)


@dataclass(frozen=True, kw_only=True)
class RKIP(KernelDistillation):
    """Reconstruction KIP: be trained on as the training set was, as far as so few examples can (Loo et al. 2023).

    With as many examples as the training set has, the best they can do is be the training set, so copies are to be
    expected whenever the sizes come near: check with :func:`exhume.evaluation.find_copies`.
    """

    @classmethod
    def published(cls, size: int = 20) -> "RKIP":
        """Return the settings of Loo et al. (2023): 50 000 steps of Adam at 1e-3, their kernel, normal noise."""
        return cls(size=size, kernel=RELEASED, noise_std=1.0, steps=50_000, learning_rate=1e-3, decay="none")

    def loss(
        self, inputs: Float[Tensor, "example value"], answers: Float[Tensor, "example output"]
    ) -> DistillationLoss:
        """Return the squared distance of embeddings."""
        kernel = self.kernel(inputs)
        duals = solve_duals(kernel, answers, self.jitter)
        return EmbeddingLoss(duals=duals, squared_norm=float((duals * (kernel @ duals)).sum()), jitter=self.jitter)


@dataclass(frozen=True, kw_only=True, eq=False)
class InducingPoints:
    """A loss as a function of distilled inputs, and of their targets where those are learned."""

    kernel: InfiniteNTK
    loss: DistillationLoss
    examples: Float[Tensor, "example value"]
    targets: Float[Tensor, "distilled output"]
    size: int | None = None
    """How many values an input has, where examples are coordinates in a smaller space."""
    is_free: Float[Tensor, "distilled value"] | None = None
    """1 where a value may move, 0 where it is noise for good."""
    min_distance: float | None = None

    @cached_property
    def squares(self) -> Float[Tensor, " example"]:
        """The squared lengths of the examples."""
        return self.examples.square().sum(1)

    @cached_property
    def everybody(self) -> Float[Tensor, "all value"]:
        """Room for the distilled inputs above the examples, so that one sweep makes both kernels."""
        return torch.cat([torch.zeros_like(self.examples[:1]).expand(len(self.targets), -1), self.examples])

    def objective(self, variables: Variables, elapsed: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Variables]:
        """Return the value at inputs (and targets), and its gradients."""
        inputs = variables[0]
        count = len(inputs)
        targets = variables[1] if len(variables) > 1 else self.targets
        self.everybody[:count] = inputs
        squares = torch.cat([inputs.square().sum(1), self.squares])
        table, pull = self.kernel.with_vjp(inputs, self.everybody, squares, self.size)
        slopes = self.loss(table[:, :count].double(), table[:, count:], targets)
        within = (slopes.by_within + slopes.by_within.T).to(inputs)  # an input stands in both places of this table
        gradient = pull(torch.cat([within, slopes.by_across], 1))
        value = slopes.value
        if self.min_distance:
            penalty, away = self._too_near(inputs)
            value, gradient = value + penalty, gradient + away
        if self.is_free is not None:
            gradient = gradient * self.is_free
        return value, (gradient, slopes.by_targets)[: len(variables)]

    def _too_near(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return a penalty on inputs within the least distance of their nearest example, and its gradient."""
        assert self.min_distance is not None
        nearest = (self.squares - 2.0 * inputs @ self.examples.T).argmin(1)
        towards = inputs - self.examples[nearest]
        distance = towards.norm(dim=1, keepdim=True).clamp(min=1e-6)
        lacking = (1.0 - distance / self.min_distance).clamp(min=0.0)
        return self.loss.scale * lacking.square().sum(), -2.0 * self.loss.scale / self.min_distance * lacking * (
            towards / distance
        )


def span_of(inputs: Float[Tensor, "n value"]) -> Float[Tensor, "axis value"]:
    """Return orthonormal axes of a space that holds all inputs, as few as there are inputs or values.

    >>> span_of(torch.tensor([[0.0, 2.0, 0.0]])).abs()
    tensor([[0., 1., 0.]])
    """
    axes: Tensor = torch.linalg.qr(inputs.T).Q.T
    return axes


PUSHES = 100


def pushed_away(
    inputs: Float[Tensor, "distilled value"],
    examples: Float[Tensor, "example value"],
    least: float,
    is_free: Float[Tensor, "distilled value"] | None = None,
) -> Float[Tensor, "distilled value"]:
    """Move inputs straight away from examples nearer than ``least``, so that the distance holds and not only nearly.

    >>> pushed_away(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]]), 2.0).norm() >= 2.0
    tensor(True)
    """
    inputs = inputs.clone()
    for _ in range(PUSHES):
        distances = torch.cdist(inputs.double(), examples.double())
        distance, nearest = distances.min(1)
        if bool((distance >= least).all()):
            return inputs
        towards = inputs - examples[nearest]
        towards = towards if is_free is None else towards * is_free
        length = towards.norm(dim=1, keepdim=True).clamp(min=1e-6)
        # A little further than asked, and further each time that another example comes too near.
        lacking = (1.001 * least - distance).clamp(min=0.0)[:, None].to(inputs)
        inputs = inputs + lacking * towards / length
    raise ExhumeError(f"No distilled set keeps a distance of {least:g} from every training input; ask for less.")
