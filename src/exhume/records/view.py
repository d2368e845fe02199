"""A trained network, as its owner holds it (Victim) and as an attacker does (AttackerView)."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.core.errors import ExhumeError, RecordError, WeightsError
from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.core.text import first_sentence
from exhume.models.architecture import Architecture
from exhume.records.record import Bounds, Record, check_bounds, fits, pair, present

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackerView(Record):
    """Everything the attacker holds, and nothing else: no training input, no label.

    Bring your own model with ``AttackerView(model=module, initial=state_dict, final=state_dict,
    input_shape=(1, 28, 28), bounds=(0, 1))``. The weights inside ``model`` are never read.
    """

    model: nn.Module = field(compare=False)
    final: Weights
    initial: Weights | None = None
    input_shape: tuple[int, ...]
    bounds: Bounds | None = (0.0, 1.0)
    """The range of an input value before ``offset`` is subtracted; part of a model's published interface."""
    offset: Float[Tensor, "..."] | None = None
    """What a user of the model subtracts from an input first: published preprocessing, and so known to the attacker."""
    linearised: bool = False
    """Whether the released network is the first-order expansion around ``initial``."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """What is publicly known of the training (loss, optimiser, ...); JSON values, printed in the report."""
    architecture: Architecture | None = None
    """Set when exhume built the model; only such a view can be saved."""

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        expected = _shapes(self.model)
        for when, weights in (("final", self.final), ("initial", self.initial)):
            if weights is not None:
                check_weights(weights, expected, when)

    @property
    def input_size(self) -> int:
        """The number of values in one input."""
        return int(torch.Size(self.input_shape).numel())

    @property
    def device(self) -> torch.device:
        """Where the final weights live."""
        return next(iter(self.final.values())).device

    def module(self, weights: Weights) -> nn.Module:
        """Return the model carrying ``weights`` (in their precision), in evaluation mode, sharing nothing."""
        model = copy.deepcopy(self.model).to(device=self.device)
        floating = [w.dtype for w in weights.values() if w.is_floating_point()]
        model = model.to(dtype=floating[0]) if floating else model
        model.load_state_dict(dict(weights))
        return model.eval().requires_grad_(False)

    def to_pixels(self, inputs: Float[Tensor, "candidate ..."]) -> Float[Tensor, "candidate ..."]:
        """Turn what the network takes into pixel units, shaped like inputs."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        return shaped if self.offset is None else shaped + self.offset.to(shaped)

    def to_model(self, inputs: Float[Tensor, "candidate ..."]) -> Float[Tensor, "candidate ..."]:
        """Turn pixel units into what the network takes, shaped like inputs."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        return shaped if self.offset is None else shaped - self.offset.to(shaped)

    def model_box(self) -> tuple[Float[Tensor, " value"], Float[Tensor, " value"]] | None:
        """Return the lowest and highest network input, value by value and flat; None where inputs are unbounded."""
        if self.bounds is None:
            return None
        corners = torch.tensor(self.bounds, dtype=torch.float64, device=self.device)
        low, high = self.to_model(corners[:, None].expand(2, self.input_size)).reshape(2, -1)
        return low, high

    def to(self, device: str | torch.device) -> "AttackerView":
        """Return the same view with its weights on ``device``; the view itself where they are there already."""
        final = _moved(self.final, device)
        initial = None if self.initial is None else _moved(self.initial, device)
        offset = None if self.offset is None else self.offset.to(device)
        if final is self.final and initial is self.initial and offset is self.offset:
            return self
        return replace(self, final=final, initial=initial, offset=offset)

    def save(self, path: Path | str) -> None:
        """Save as one file; only a view of a model that exhume built can be saved."""
        if self.architecture is None:
            raise RecordError("A view of your own module cannot be saved; save its weights and rebuild the view.")
        save_bundle(Path(path), "view", *_pack_network(self, self.architecture))

    @classmethod
    def load(cls, path: Path | str) -> "AttackerView":
        """Load what :meth:`save` wrote."""
        with fits(path, "view"):
            network = _unpack_network(path, "view")
            return cls(model=network["architecture"].build(network["input_shape"], network.pop("outputs")), **network)


@dataclass(frozen=True, kw_only=True, eq=False)
class Victim(Record):
    """A trained network with both ends of its training and an exact record of how it was trained."""

    architecture: Architecture
    initial: Weights
    final: Weights
    input_shape: tuple[int, ...]
    outputs: int
    bounds: Bounds | None
    offset: Float[Tensor, "..."] | None = None
    linearised: bool = False
    dataset: str
    training: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the training, as JSON values: enough to repeat it."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """How the training went: steps, loss, seconds, versions. Never shown to an attacker."""

    def __post_init__(self) -> None:
        check_bounds(self.bounds)

    def view(self) -> AttackerView:
        """Return what an attacker holds who has both ends of the training and the published preprocessing."""
        return AttackerView(
            model=self.architecture.build(self.input_shape, self.outputs),
            initial=self.initial,
            final=self.final,
            input_shape=self.input_shape,
            bounds=self.bounds,
            offset=self.offset,
            linearised=self.linearised,
            training=self.training,
            architecture=self.architecture,
        )

    def save(self, path: Path | str) -> None:
        """Save as one file."""
        values, tensors = _pack_network(self, self.architecture)
        values |= {"outputs": self.outputs, "dataset": self.dataset, "result": dict(self.result)}
        save_bundle(Path(path), "victim", values, tensors)

    @classmethod
    def load(cls, path: Path | str) -> "Victim":
        """Load what :meth:`save` wrote."""
        with fits(path, "victim"):
            victim = cls(**_unpack_network(path, "victim"))
            expected = _shapes(victim.architecture.build(victim.input_shape, victim.outputs))
            check_shapes(victim.final, expected, "final")
            check_shapes(victim.initial or {}, expected, "initial")
            return victim


def check_weights(weights: Weights, expected: Mapping[str, torch.Size], when: str) -> None:
    """Raise :class:`WeightsError` unless ``weights`` have the expected names and shapes and only finite values."""
    check_shapes(weights, expected, when)
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f"The {when} weights hold NaN or infinite values in {name}: the training diverged.")


def check_shapes(weights: Weights, expected: Mapping[str, torch.Size], when: str) -> None:
    """Raise :class:`WeightsError` unless ``weights`` have the expected names and shapes."""
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or unknown:
        raise WeightsError(
            f"The {when} weights do not belong to this model: "
            f"missing {missing[:3] or 'none'}, unknown {unknown[:3] or 'none'}."
        )
    for name, tensor in weights.items():
        if tensor.shape != expected[name]:
            raise WeightsError(
                f"The {when} weights have {name} of shape {tuple(tensor.shape)}, the model {tuple(expected[name])}."
            )


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _moved(weights: Weights, device: str | torch.device) -> Weights:
    """Return weights on ``device``; the same mapping where all of them are there already."""
    moved = {name: tensor.to(device) for name, tensor in weights.items()}
    return moved if any(moved[name] is not weights[name] for name in weights) else weights


def _pack_network(
    network: AttackerView | Victim, architecture: Architecture
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    values: dict[str, Any] = {
        "architecture": architecture.describe(),
        "input_shape": network.input_shape,
        "bounds": network.bounds,
        "linearised": network.linearised,
        "training": dict(network.training),
    }
    if isinstance(network, AttackerView):
        values["outputs"] = count_outputs(network.model, network.input_shape)
    tensors = add_prefix("final", network.final) | add_prefix("initial", network.initial or {})
    return values, tensors | present(offset=network.offset)


def _unpack_network(path: Path | str, kind: str) -> dict[str, Any]:
    values, tensors = load_bundle(Path(path), kind)
    with fits(path, kind):
        network: dict[str, Any] = values | {
            "architecture": Architecture.from_description(values["architecture"]),
            "input_shape": tuple(values["input_shape"]),
            "bounds": pair(values["bounds"]),
            "offset": tensors.get("offset"),
            "initial": select_prefix(tensors, "initial") or None,
            "final": select_prefix(tensors, "final"),
        }
        return network


def count_outputs(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Return how many outputs a model gives for one input.

    Raises:
        ExhumeError: when the model does not take an input of this shape, or returns anything but a tensor.
    """
    weight = next(iter(model.parameters()))
    nothing = torch.zeros(1, *input_shape, dtype=weight.dtype, device=weight.device)
    was_training = [module for module in model.modules() if module.training]
    try:
        # As users run it: normalisation in training takes no single example, and would learn from this one.
        with torch.no_grad():
            given = model.eval()(nothing)
    except Exception as error:  # the owner's code may raise anything
        raise ExhumeError(
            f"The model does not take inputs of shape {input_shape} ({first_sentence(error)})."
        ) from error
    finally:
        for module in was_training:
            module.training = True
    if not isinstance(given, Tensor):
        raise ExhumeError(
            f"The model returns a {type(given).__name__}; wrap it so that it returns the tensor of its outputs alone."
        )
    return given.numel()
