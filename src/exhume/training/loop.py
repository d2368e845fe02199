"""The training loop: gradient steps that stop at a loss and resume bit by bit."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError
from exhume.core.progress import Progress
from exhume.core.repeated_step import RepeatedStep, recordable
from exhume.core.run_context import STOPS
from exhume.core.storage import add_prefix, select_prefix
from exhume.core.text import count_noun
from exhume.training.losses import Loss
from exhume.training.settings import Training

REPORT_STEPS = 100
"""Number of steps between two progress reports."""
GPU_CHECK_STEPS = 25
"""Number of steps between two readings of the loss from a GPU, since each makes it wait; 1 on a CPU."""


@dataclass(kw_only=True)
class TrainingLoop:
    """A training in progress: the network, its optimiser and every count that decides the next step."""

    network: nn.Module
    inputs: Tensor
    targets: Tensor
    objective: Loss
    settings: Training
    """Resolved settings; only the learning rate may still fall, under ``retries``."""
    generator: torch.Generator
    """Draws the order of mini-batches."""
    retries: int = 0
    """Number of times to start over with a quarter of the learning rate when the loss diverges."""
    step: int = 0
    first: float = math.inf
    """Loss before the first step."""
    loss: float = math.inf
    best: float = math.inf
    best_step: int = 0
    seconds: float = 0.0
    optimiser: torch.optim.Optimizer = field(init=False)
    order: Tensor | None = field(init=False, default=None)
    order_state: Tensor = field(init=False)
    """State of the generator before it drew the current order; a resumed training draws the same order from it."""
    buffers: dict[str, Tensor] = field(init=False, default_factory=dict)
    """Buffers before the forward pass of the current step, which changes running statistics: a training that ends or
    pauses at a step has not taken it."""
    initial: dict[str, Tensor] = field(init=False)
    initial_order: Tensor = field(init=False)
    repeated: RepeatedStep = field(init=False)
    """A step with full batches between two readings of the loss."""

    def __post_init__(self) -> None:
        self.initial = {name: weight.detach().clone() for name, weight in self.network.state_dict().items()}
        self.order_state = self.initial_order = self.generator.get_state()
        self.prepare_steps()

    def prepare_steps(self) -> None:
        """Begin with an optimiser without state."""
        self.optimiser = self.build_optimiser()
        self.repeat_from_here()

    def repeat_from_here(self) -> None:
        """Forget a recorded step, which holds the settings and tensors of its time."""
        self.repeated = RepeatedStep(lambda: self.descend(self.compute_value()), self.inputs.device)

    def build_optimiser(self) -> torch.optim.Optimizer:
        """Return an optimiser without state."""
        settings = self.settings
        parameters = [weight for weight in self.network.parameters() if weight.requires_grad]
        lr, momentum = settings.lr or 0.0, settings.momentum or 0.0
        if settings.optimiser == "adam":
            return torch.optim.Adam(parameters, lr=lr, betas=(momentum, 0.999), weight_decay=settings.weight_decay)
        if settings.optimiser == "adamw":
            return torch.optim.AdamW(parameters, lr=lr, betas=(momentum, 0.999), weight_decay=settings.weight_decay)
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=settings.weight_decay)

    def run(self, progress: Progress, checkpoint: Checkpoint | None) -> str:
        """Train to the end and return what ended it: ``loss``, ``plateau`` or ``steps``."""
        with recordable(self.inputs.device):
            return self.take_steps(progress, checkpoint)

    def take_steps(self, progress: Progress, checkpoint: Checkpoint | None) -> str:
        """Take steps to the end, and read the loss, report and save between them."""
        before, started = self.seconds, time.perf_counter()
        total = self.settings.steps or 0
        while True:
            self.set_momentum()
            if self.can_repeat():
                self.repeated()
                self.step += 1
                continue
            self.buffers = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
            value = self.compute_value()
            end = None
            if self.is_check_due():
                self.loss = value.item() if self.settings.batch_size is None else self.measure_loss()
                if self.step == 0:
                    self.first = self.loss
                if self.has_diverged():
                    self.start_over()
                    continue
                end = self.find_end()
            if end is not None or self.step % REPORT_STEPS == 0:
                self.seconds = before + time.perf_counter() - started
                if checkpoint is not None and (end is not None or checkpoint.is_due()):
                    checkpoint.save(*self.pack())
                try:
                    progress("train", total if end else self.step, total, f"loss {self.loss:.1e}")
                except STOPS:  # raised by the report, where the state is complete
                    if checkpoint is not None:
                        checkpoint.save(*self.pack())
                    raise
            if end is not None:
                self.network.load_state_dict(self.buffers, strict=False)
                return end
            self.descend(value)
            self.step += 1

    def compute_value(self) -> Tensor:
        """Return the loss of the current batch."""
        inputs, targets = self.next_batch()
        return self.objective(self.network(inputs), targets)

    def descend(self, value: Tensor) -> None:
        """Change the weights along the gradient of a loss."""
        self.optimiser.zero_grad()
        torch.autograd.backward(value)
        self.optimiser.step()

    def set_momentum(self) -> None:
        """Set the momentum of the current step; a recorded step keeps the one that it was recorded with."""
        momentum, group = self.settings.momentum_at(self.step), self.optimiser.param_groups[0]
        if self.settings.optimiser == "sgd" and group["momentum"] != momentum:
            group["momentum"] = momentum
            self.repeat_from_here()

    def can_repeat(self) -> bool:
        """Return whether the next step is like the last one in everything but the weights, and reads nothing back."""
        settings = self.settings
        return (
            self.inputs.is_cuda
            and settings.batch_size is None
            and settings.optimiser == "sgd"
            and not self.buffers
            and not self.is_check_due()
            and settings.momentum_at(self.step - 1) == settings.momentum_at(self.step)
        )

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps per pass over the data."""
        return math.ceil(len(self.inputs) / (self.settings.batch_size or len(self.inputs)))

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of the current step."""
        size = self.settings.batch_size
        if size is None:
            return self.inputs, self.targets
        place = self.step % self.steps_per_epoch
        if place == 0 or self.order is None:
            self.order_state = self.generator.get_state()
            self.order = torch.randperm(len(self.inputs), generator=self.generator).to(self.inputs.device)
        chosen = self.order[place * size : (place + 1) * size]
        return self.inputs[chosen], self.targets[chosen]

    def is_check_due(self) -> bool:
        """Return whether the training loss is measured at this step: where that is cheap, and at the end."""
        every = self.steps_per_epoch
        if self.settings.batch_size is None and self.inputs.is_cuda:
            every = GPU_CHECK_STEPS
        return self.step % every == 0 or self.step == self.settings.steps

    @torch.no_grad()
    def measure_loss(self) -> float:
        """Return the loss over all examples, in evaluation mode: a measurement must not change running statistics."""
        try:
            return self.objective(self.network.eval()(self.inputs), self.targets).item()
        finally:
            self.network.train()

    @torch.no_grad()
    def compute_penalty(self) -> float:
        """Return the term that weight decay adds to the loss."""
        if self.settings.weight_decay == 0.0 or self.settings.optimiser == "adamw":  # which decays beside the loss
            return 0.0
        parameters = self.optimiser.param_groups[0]["params"]
        squares = torch.stack([weight.square().sum() for weight in parameters]).sum().item()
        return 0.5 * self.settings.weight_decay * squares

    def has_diverged(self) -> bool:
        """Return whether the loss is not finite, or a hundred times the first one."""
        return not math.isfinite(self.loss) or self.loss > 100.0 * max(self.first, 1.0)

    def start_over(self) -> None:
        """Return to the initial weights with a smaller learning rate, or give up."""
        lr = self.settings.lr or 0.0
        if self.retries == 0:
            steps = count_noun(self.step, "step")
            raise ExhumeError(f"The training diverged after {steps}; lower its learning rate {lr:g}.")
        self.retries -= 1
        self.settings = replace(self.settings, lr=lr / 4.0)
        self.network.load_state_dict(self.initial)
        self.generator.set_state(self.initial_order)
        self.prepare_steps()
        self.step, self.best, self.best_step, self.order = 0, math.inf, 0, None

    def find_end(self) -> str | None:
        """Return what ends the training at this step; None: nothing."""
        settings = self.settings
        if settings.stop_loss and self.loss <= settings.stop_loss:
            return "loss"
        objective = self.loss + self.compute_penalty()
        if objective < 0.999 * self.best:
            self.best, self.best_step = objective, self.step
        if settings.patience and self.step - self.best_step >= settings.patience:
            return "plateau"
        return "steps" if self.step == settings.steps else None

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return everything that decides how the training continues."""
        counts = {name: getattr(self, name) for name in ("step", "best_step", "seconds", "retries")}
        # As a tensor: losses may be infinite, which JSON cannot hold.
        losses = torch.tensor([self.first, self.loss, self.best], dtype=torch.float64)
        network = self.network.state_dict() | self.buffers
        tensors = {"losses": losses, "order": self.order_state} | add_prefix("network", network)
        for number, state in self.optimiser.state_dict()["state"].items():
            memory = {name: torch.as_tensor(value) for name, value in state.items() if value is not None}
            tensors |= add_prefix(f"optimiser/{number}", memory)
        return counts | {"lr": self.settings.lr}, tensors

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that :meth:`pack` returned."""
        self.settings = replace(self.settings, lr=values["lr"])
        for name in ("step", "best_step", "seconds", "retries"):
            setattr(self, name, values[name])
        self.first, self.loss, self.best = tensors["losses"].tolist()
        self.order = None
        self.generator.set_state(tensors["order"])
        self.network.load_state_dict(select_prefix(tensors, "network"))
        self.prepare_steps()
        memory = select_prefix(tensors, "optimiser")
        numbers = {name.split("/")[0] for name in memory}
        whole = self.optimiser.state_dict()
        self.optimiser.load_state_dict(
            whole | {"state": {int(number): select_prefix(memory, number) for number in numbers}}
        )
