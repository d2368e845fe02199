"""The loop of training: plain steps downhill, stoppable at a loss and resumable to the bit."""

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exhume.errors import ExhumeError
from exhume.progress import Progress
from exhume.storage import group, load_bundle, save_bundle, ungroup
from exhume.training.losses import Loss
from exhume.training.settings import Training

SAVE_SECONDS = 30.0
"""How often a training with a checkpoint saves its state."""
REPORT_STEPS = 100
"""How often a training reports where it stands."""
GPU_CHECK_STEPS = 10
"""How often the loss is read back from a GPU, where every reading makes it wait; elsewhere every step."""


class Diverged(ExhumeError):  # noqa: N818 - reads as what happened
    """The loss left all bounds."""


@dataclass
class Descent:
    """A training under way: the network, its optimiser and every count that decides what happens next."""

    network: nn.Module
    inputs: Tensor
    targets: Tensor
    objective: Loss
    settings: Training
    """Resolved: nothing left at None but what may be."""
    generator: torch.Generator
    """Orders the mini-batches."""
    step: int = 0
    first: float = math.inf
    loss: float = math.inf
    best: float = math.inf
    best_step: int = 0
    seconds: float = 0.0
    optimiser: torch.optim.Optimizer = field(init=False)
    order: Tensor | None = field(init=False, default=None)
    order_state: Tensor = field(init=False)
    """The generator before it drew the present order, from which a resumed training draws it again."""

    def __post_init__(self) -> None:
        settings = self.settings
        trained = [weight for weight in self.network.parameters() if weight.requires_grad]
        if settings.optimiser == "sgd":
            self.optimiser = torch.optim.SGD(trained, lr=settings.lr or 0.0, weight_decay=settings.weight_decay)
        else:
            betas = (settings.momentum or 0.0, 0.999)
            self.optimiser = torch.optim.Adam(
                trained, lr=settings.lr or 0.0, betas=betas, weight_decay=settings.weight_decay
            )
        self.order_state = self.generator.get_state()

    def run(self, progress: Progress, checkpoint: "Checkpoint | None") -> str:
        """Descend to the end and return what ended it: ``loss``, ``plateau`` or ``steps``."""
        before, started = self.seconds, time.perf_counter()
        total = self.settings.steps or 0
        while True:
            inputs, targets = self.batch()
            value = self.objective(self.network(inputs), targets)
            end = None
            if self.at_check():
                self.loss = value.item() if self.settings.batch_size is None else self.measure()
                end = self.end()
            if end is not None or self.step % REPORT_STEPS == 0:
                self.seconds = before + time.perf_counter() - started
                if checkpoint is not None and (end is not None or checkpoint.due()):
                    checkpoint.save(self)
                try:
                    progress("train", total if end else self.step, total, f"loss {self.loss:.1e}")
                except KeyboardInterrupt:  # from a listener: here the state is whole, so nothing need be lost
                    if checkpoint is not None:
                        checkpoint.save(self)
                    raise
            if end is not None:
                return end
            self.optimiser.zero_grad()
            torch.autograd.backward(value)
            if self.settings.optimiser == "sgd":
                self.optimiser.param_groups[0]["momentum"] = self.settings.momentum_at(self.step)
            self.optimiser.step()
            self.step += 1

    def at_check(self) -> bool:
        """Tell whether the training loss is measured at this step: where it is cheap, and at the very end."""
        if self.settings.batch_size is None:
            every = GPU_CHECK_STEPS if self.inputs.is_cuda else 1
        else:
            every = self.steps_per_epoch
        return self.step % every == 0 or self.step == self.settings.steps

    def end(self) -> str | None:
        """Return what ends the training here, if anything does."""
        settings = self.settings
        if self.step == 0:
            self.first = self.loss
        if not self.loss <= 100.0 * max(self.first, 1.0):  # written so that NaN is out of bounds too
            raise Diverged(f"The training diverged after {self.step} steps; lower its learning rate {settings.lr:g}.")
        if settings.stop_loss and self.loss <= settings.stop_loss:
            return "loss"
        minimised = self.loss + self.penalty()
        if minimised < 0.999 * self.best:
            self.best, self.best_step = minimised, self.step
        if settings.patience and self.step - self.best_step >= settings.patience:
            return "plateau"
        return "steps" if self.step == settings.steps else None

    @property
    def steps_per_epoch(self) -> int:
        """How many steps make a pass over the data."""
        return math.ceil(len(self.inputs) / (self.settings.batch_size or len(self.inputs)))

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of the present step."""
        size = self.settings.batch_size
        if size is None:
            return self.inputs, self.targets
        place = self.step % self.steps_per_epoch
        if place == 0:
            self.order_state = self.generator.get_state()
        elif self.order is None:
            self.generator.set_state(self.order_state)
        if place == 0 or self.order is None:
            self.order = torch.randperm(len(self.inputs), generator=self.generator).to(self.inputs.device)
        chosen = self.order[place * size : (place + 1) * size]
        return self.inputs[chosen], self.targets[chosen]

    @torch.no_grad()
    def measure(self) -> float:
        """Return the loss over all examples."""
        return self.objective(self.network(self.inputs), self.targets).item()

    @torch.no_grad()
    def penalty(self) -> float:
        """Return what weight decay adds to the loss."""
        if self.settings.weight_decay == 0.0:
            return 0.0
        trained = self.optimiser.param_groups[0]["params"]
        squares = torch.stack([weight.square().sum() for weight in trained]).sum().item()
        return 0.5 * self.settings.weight_decay * squares

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return everything that decides how the training goes on."""
        values = {"lr": self.settings.lr, "step": self.step, "best_step": self.best_step, "seconds": self.seconds}
        # As a tensor: losses may be infinite, which JSON cannot say.
        losses = torch.tensor([self.first, self.loss, self.best], dtype=torch.float64)
        tensors = {"losses": losses, "order": self.order_state} | ungroup("network", self.network.state_dict())
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= ungroup(f"optimiser/{number}", {name: torch.as_tensor(value) for name, value in state.items()})
        return values, tensors

    def unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go back to where :meth:`pack` was called."""
        self.step, self.best_step, self.seconds = values["step"], values["best_step"], values["seconds"]
        self.first, self.loss, self.best = tensors["losses"].tolist()
        self.order_state = tensors["order"]
        self.network.load_state_dict(group(tensors, "network"))
        buffers = group(tensors, "optimiser")
        numbers = {name.split("/")[0] for name in buffers}
        whole = self.optimiser.state_dict()
        self.optimiser.load_state_dict(whole | {"state": {int(number): group(buffers, number) for number in numbers}})


class Checkpoint:
    """A file that holds a training under way, and refuses to continue another one."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self.identity = identity
        self.saved_at = time.perf_counter()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return what :meth:`Descent.pack` packed; None when there is no file yet."""
        if not self.path.exists():
            return None
        values, tensors = load_bundle(self.path, "training")
        if values.pop("identity", None) != self.identity:
            raise ExhumeError(
                f"The checkpoint {self.path} belongs to a training with other settings or data; "
                "remove it or name another file."
            )
        return values, tensors

    def due(self) -> bool:
        """Tell whether the last save was long enough ago."""
        return time.perf_counter() - self.saved_at >= SAVE_SECONDS

    def save(self, descent: Descent) -> None:
        """Save the state of ``descent``."""
        values, tensors = descent.pack()
        save_bundle(self.path, "training", values | {"identity": self.identity}, tensors)
        self.saved_at = time.perf_counter()


def fingerprint(values: Mapping[str, Any], *tensors: Tensor) -> str:
    """Return a digest of JSON values and tensors.

    >>> fingerprint({"lr": 0.1}, torch.zeros(2)) == fingerprint({"lr": 0.1}, torch.ones(2))
    False
    """
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for tensor in tensors:
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
