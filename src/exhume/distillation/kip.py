"""Distillation with the kernel of a network of infinite width: one problem, two losses."""

import math
from abc import abstractmethod
from typing import Annotated, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.core.errors import ExhumeError
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.distillation.distillation import Distillation, make_split
from exhume.distillation.inducing_points import InducingPoints, push_away, span_axes
from exhume.distillation.losses import DistillationLoss, EmbeddingLoss, PredictionLoss
from exhume.kernels import JITTER, InfiniteNTK, solve_duals
from exhume.optimise import Adam, Decay, Variables, minimise
from exhume.records import Dataset, Outcome, Split
from exhume.training.losses import LOSSES, signed_or_centred

WIDE_KERNEL = InfiniteNTK()
RELEASED_KERNEL = InfiniteNTK(width=None, bias_gain=0.0)
"""Kernel of the released code of Loo et al. (2023): two hidden layers without biases in the NTK parameterisation.

Their networks have biases and the standard parameterisation, whose kernel is a different one.
"""


@settings
class KernelDistillation(Distillation):
    """Settings that KIP and RKIP share; a subclass defines the loss."""

    kernel: InfiniteNTK = WIDE_KERNEL
    """Infinite-width limit of the network that will be trained on the distilled set."""
    labels: Literal["fixed", "learned"] = "fixed"
    """``fixed`` divides the examples evenly among the classes; ``learned`` optimises targets with the inputs."""
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of each input's values that are drawn at random and stay fixed."""
    noise_std: NonNegativeFloat | None = None
    """Standard deviation of these values around zero, in network units; None: uniform over the value range."""
    min_distance: NonNegativeFloat | None = None
    """Least Euclidean distance of a distilled input to any training input; None: no limit."""
    steps: PositiveInt = 3000
    learning_rate: PositiveFloat = 0.01
    decay: Decay = "cosine"
    coordinates: Literal["values", "span"] = "values"
    """Variables of the search: input values, or coordinates in the span of the training inputs and the initial guesses.

    Gradients never leave that span, so nothing is lost, and steps cost less where it has fewer dimensions; but Adam
    takes a different path.
    """
    init_std: NonNegativeFloat = 0.2
    """Standard deviation of the initial guesses around zero, in network units."""
    jitter: NonNegativeFloat = JITTER
    precision: Literal["float32", "float64"] = "float32"
    """Precision of kernels; linear systems are always solved in float64."""

    def __post_init__(self) -> None:
        if self.noise and self.coordinates == "span":
            raise ExhumeError("Values fixed to noise leave the span of the data; distil with coordinates='values'.")

    @classmethod
    def published(cls, size: int = 20) -> "KernelDistillation":
        """Return the settings of Loo et al. (2023): 50 000 steps of Adam at 1e-3, their kernel, normal noise."""
        return cls(size=size, kernel=RELEASED_KERNEL, noise_std=1.0, steps=50_000, learning_rate=1e-3, decay="none")

    @abstractmethod
    def loss(
        self, inputs: Float[Tensor, "example value"], answers: Float[Tensor, "example output"]
    ) -> DistillationLoss:
        """Return the loss for training inputs and targets, both in float64."""

    @final
    def distil(self, data: Dataset, context: RunContext, device: torch.device) -> Split:
        """Minimise the loss, starting from noise."""
        dtype: torch.dtype = getattr(torch, self.precision)
        answers = LOSSES["mse"].targets(data, data.train).to(device).double()
        inputs = data.to_model(data.train.inputs).flatten(1).to(device).double()
        loss = self.loss(inputs, answers)
        labels = torch.arange(self.size) % max(2, len(data.classes))
        targets = signed_or_centred(labels, len(data.classes)).to(device).double()
        if targets.shape[1] != answers.shape[1]:
            raise ExhumeError(f"{data.name} has soft targets that do not match its classes; distil plain labels.")
        guesses, is_free = self._draw_guesses(data, context.generator)
        guesses = guesses.to(device).double()
        basis = span_axes(torch.cat([inputs, guesses])) if self.coordinates == "span" else None
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
        # Adam moves every coordinate by about the rate; this keeps the length of a step the same in fewer coordinates.
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
            raise ExhumeError("The distillation diverged; lower the learning rate or raise the jitter.")
        made = end.variables[0]
        if self.min_distance is not None:
            made = push_away(made, problem.examples, self.min_distance, problem.is_free)
        if basis is not None:
            made = made.double() @ basis
        learned = self.labels == "learned"
        return make_split(data, made, end.variables[1] if learned else targets, soft=learned)

    def _draw_guesses(
        self, data: Dataset, generator: torch.Generator
    ) -> tuple[Float[Tensor, "distilled value"], Bool[Tensor, "distilled value"] | None]:
        """Return the initial guesses as flat network inputs, and which values may change (None: all)."""
        size = math.prod(data.input_shape)
        guesses = self.init_std * torch.randn(self.size, size, generator=generator)
        if self.noise == 0.0:
            return guesses, None
        fixed = torch.rand(self.size, size, generator=generator).argsort(1) < round(self.noise * size)
        return torch.where(fixed, self._draw_noise(data, (self.size, size), generator), guesses), ~fixed

    def _draw_noise(
        self, data: Dataset, shape: tuple[int, int], generator: torch.Generator
    ) -> Float[Tensor, "distilled value"]:
        """Return flat network inputs of pure noise."""
        if self.noise_std is not None:
            return self.noise_std * torch.randn(shape, generator=generator)
        if data.bounds is None:
            noise = torch.randn(shape, generator=generator)
        else:
            low, high = data.bounds
            noise = low + (high - low) * torch.rand(shape, generator=generator)
        return data.to_model(noise.reshape(len(noise), *data.input_shape)).flatten(1)


@settings
class KIP(KernelDistillation):
    """Kernel inducing points: predict the training labels (Nguyen et al. 2021)."""

    def loss(
        self, inputs: Float[Tensor, "example value"], answers: Float[Tensor, "example output"]
    ) -> DistillationLoss:
        """Return the mean squared error of predictions."""
        return PredictionLoss(answers=answers, jitter=self.jitter)


@settings
class RKIP(KernelDistillation):
    """Reconstruction KIP: train to the same function as on the training set, as far as possible (Loo et al. 2023).

    With as many examples as the training set has, the optimum is the training set itself, so expect copies when the
    sizes are similar, and check for them with :func:`exhume.evaluation.find_copies`.
    """

    def loss(
        self, inputs: Float[Tensor, "example value"], answers: Float[Tensor, "example output"]
    ) -> DistillationLoss:
        """Return the squared distance of embeddings."""
        kernel = self.kernel(inputs)
        duals = solve_duals(kernel, answers, self.jitter)
        return EmbeddingLoss(duals=duals, squared_norm=float((duals * (kernel @ duals)).sum()), jitter=self.jitter)
