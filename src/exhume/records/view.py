"""AttackerView: everything that an attacker holds about a trained network."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.core.errors import RecordError, WeightsError
from exhume.core.storage import add_prefix, load_bundle, save_bundle, select_prefix
from exhume.core.weight_files import match_names
from exhume.models.architecture import Architecture
from exhume.models.outputs import with_tensor_output
from exhume.models.tangent import widen
from exhume.records.checkpoints import read_checkpoint
from exhume.records.given import (
    check_tensors,
    check_training,
    read_input_shape,
    read_more_gradients,
    read_offset,
    require_module,
)
from exhume.records.optimiser_state import OptimiserState, read_state
from exhume.records.public_training import SECRETS, PublicTraining
from exhume.records.record import Bounds, Record, check_bounds, drop_none, read_bounds, refuse_misfits
from exhume.records.weights import GradientAt, Weights, check_gradient, check_weights, count_outputs, weight_shapes

if TYPE_CHECKING:
    # What a view holds after its constructor converted a mapping.
    Facts: TypeAlias = PublicTraining
    State: TypeAlias = OptimiserState
else:
    Facts = PublicTraining | Mapping[str, Any]
    State = OptimiserState | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackerView(Record):
    """Everything the attacker holds, and nothing else: no training input, no label, no seed.

    Bring your own model with ``AttackerView(model=module, initial=state_dict, final=state_dict,
    input_shape=(1, 28, 28), bounds=(0, 1))``. The weights inside ``model`` are never read. What an attacker holds
    besides the final weights is optional: initial weights, a gradient, the state of an optimiser.
    """

    model: nn.Module = field(compare=False)
    final: Weights
    """The weights that were released, at which the gradient was taken or the optimiser's state was saved."""
    initial: Weights | None = None
    gradient: Weights | None = None
    """The gradient of the loss on one batch, by parameter name, as a mean or a sum; frozen parameters may be absent."""
    more_gradients: tuple[GradientAt, ...] = ()
    """Gradients of the same data at other weights, such as those of other rounds; each adds evidence to the first."""
    optimiser_state: State | None = None
    """What an optimiser remembers of its last gradients, such as Adam's ``exp_avg``: by parameter name, or PyTorch's
    ``optimizer.state_dict()``."""
    input_shape: tuple[int, ...]
    bounds: Bounds | None = (0.0, 1.0)
    """The range of an input value before ``offset`` is subtracted; part of a model's published interface."""
    offset: Float[Tensor, "..."] | None = None
    """What users of the model subtract from an input first: published preprocessing, so known to the attacker. A plain
    number is subtracted from every value."""
    linearised: bool = False
    """Whether the released network is the first-order expansion around ``initial``."""
    training: Facts = field(default_factory=PublicTraining)
    """What is publicly known about the training (loss, optimiser, …), printed in the report.

    A mapping of facts by name is converted: ``training={"loss": "mse", "weight_decay": 1e-3}``.
    """
    architecture: Architecture | None = None
    """Set when exhume built the model; only such a view can be saved."""

    def __post_init__(self) -> None:
        if isinstance(self.training, Mapping):
            object.__setattr__(self, "training", PublicTraining.from_facts(self.training))
        check_training(self.training)
        object.__setattr__(self, "input_shape", read_input_shape(self.input_shape))
        object.__setattr__(self, "offset", read_offset(self.offset, self.input_shape))
        object.__setattr__(self, "bounds", check_bounds(self.bounds))
        object.__setattr__(self, "more_gradients", read_more_gradients(self.more_gradients))
        object.__setattr__(self, "model", with_tensor_output(require_module(self.model), self.input_shape))
        expected = weight_shapes(self.model)
        for name, what in (("final", "final weights"), ("initial", "initial weights"), ("gradient", "gradient")):
            weights = getattr(self, name)
            if weights is None and name != "final":
                continue
            check_tensors(weights, what)
            if not weights.keys() <= expected.keys():
                object.__setattr__(self, name, match_names(dict(weights), expected.keys()))
        for when, weights in (("final", self.final), ("initial", self.initial)):
            if weights is not None:
                check_weights(weights, expected, when)
        if self.gradient is not None:
            check_gradient(self.gradient, expected, "gradient")
        for number, other in enumerate(self.more_gradients, 2):
            check_tensors(other.weights, f"{number}. gradient's weights")
            check_tensors(other.gradient, f"{number}. gradient")
            check_weights(other.weights, expected, f"{number}. gradient's")
            check_gradient(other.gradient, expected, f"{number}. gradient")
            if self.gradient is None or other.gradient.keys() != self.gradient.keys():
                raise WeightsError(
                    "All gradients of the same data have the same parameters, and gradient is the first."
                )
        if self.optimiser_state is not None:
            object.__setattr__(self, "optimiser_state", read_state(self.optimiser_state, self.model))
            check_tensors(self.optimiser_state.first_moment, "optimiser state")
            check_gradient(self.optimiser_state.first_moment, expected, "optimiser state")
            if self.optimiser_state.second_moment:
                check_tensors(self.optimiser_state.second_moment, "optimiser's second moment")
                check_gradient(self.optimiser_state.second_moment, expected, "optimiser's second moment")

    @property
    def input_size(self) -> int:
        """The number of values in one input."""
        return int(torch.Size(self.input_shape).numel())

    @property
    def device(self) -> torch.device:
        """The device of the final weights."""
        return next(iter(self.final.values())).device

    def module(self, weights: Weights) -> nn.Module:
        """Return a copy of the model with ``weights``, in evaluation mode and in one type, at least float32."""
        model, widened = copy.deepcopy(self.model).to(device=self.device), widen(weights)
        floating = [weight.dtype for weight in widened.values() if weight.is_floating_point()]
        model = model.to(dtype=floating[0]) if floating else model
        model.load_state_dict(widened)
        return model.eval().requires_grad_(False)

    def to_pixels(self, inputs: Float[Tensor, "candidate ..."]) -> Float[Tensor, "candidate ..."]:
        """Convert network inputs to pixel units, in the shape of inputs."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        return shaped if self.offset is None else shaped + self.offset.to(shaped)

    def to_model(self, inputs: Float[Tensor, "candidate ..."]) -> Float[Tensor, "candidate ..."]:
        """Convert pixel units to network inputs, in the shape of inputs."""
        shaped = inputs.reshape(len(inputs), *self.input_shape)
        return shaped if self.offset is None else shaped - self.offset.to(shaped)

    def model_box(self) -> tuple[Float[Tensor, " value"], Float[Tensor, " value"]] | None:
        """Return the lowest and the highest network input per value, flat; None where inputs are unbounded."""
        if self.bounds is None:
            return None
        corners = torch.tensor(self.bounds, dtype=torch.float64, device=self.device)
        low, high = self.to_model(corners[:, None].expand(2, self.input_size)).reshape(2, -1)
        return low, high

    def to(self, device: str | torch.device) -> "AttackerView":
        """Return the same view with its weights on ``device``; the view itself where they are there already."""
        moved: dict[str, Any] = {"final": _move(self.final, device)}
        for name in ("initial", "gradient"):
            weights = getattr(self, name)
            moved[name] = None if weights is None else _move(weights, device)
        state = self.optimiser_state
        if state is not None:
            first, second = _move(state.first_moment, device), _move(state.second_moment, device)
            moved["optimiser_state"] = state if first is state.first_moment else state.with_moments(first, second)
        others = tuple(
            GradientAt(weights=_move(one.weights, device), gradient=_move(one.gradient, device))
            for one in self.more_gradients
        )
        is_moved = any(new.weights is not old.weights for new, old in zip(others, self.more_gradients, strict=True))
        moved["more_gradients"] = others if is_moved else self.more_gradients
        moved["offset"] = None if self.offset is None else self.offset.to(device)
        return self if all(value is getattr(self, name) for name, value in moved.items()) else replace(self, **moved)

    def save(self, path: Path | str) -> None:
        """Save as one file; only a view of a model that exhume built can be saved."""
        if self.architecture is None:
            raise RecordError("A view of your own module cannot be saved; save its weights and rebuild the view.")
        tensors = pack_weights(self.final, self.initial, self.offset, self.gradient, self.optimiser_state)
        for number, other in enumerate(self.more_gradients):
            tensors |= add_prefix(f"more_gradients/{number}/weights", other.weights)
            tensors |= add_prefix(f"more_gradients/{number}/gradient", other.gradient)
        outputs = count_outputs(self.model, self.input_shape)
        values = {
            "architecture": self.architecture.describe(),
            "input_shape": self.input_shape,
            "outputs": outputs,
            "bounds": self.bounds,
            "linearised": self.linearised,
            "training": self.training.facts(),
        } | describe_evidence(self.gradient, self.optimiser_state)
        if self.more_gradients:
            values["more_gradients"] = len(self.more_gradients)
        save_bundle(Path(path), "view", values, tensors)

    @classmethod
    def from_checkpoint(
        cls, path: Path | str, *, model: nn.Module, input_shape: tuple[int, ...], **known: Any
    ) -> "AttackerView":
        """Return what somebody holds who got a training checkpoint: its weights and its optimiser's state.

        Args:
            path: a PyTorch file with the weights and an optimiser's ``state_dict()``, a Lightning ``.ckpt``, or the
                folder of a Hugging Face Trainer or of Accelerate. Nothing inside is executed.
            model: the network, with any weights.
            input_shape: the shape of one input.
            **known: further fields of the view, such as ``bounds``, ``offset`` or ``initial``.

        Raises:
            WeightsError: when the file is damaged, foreign or would execute code, or does not belong to the model.
        """
        content = read_checkpoint(path, model)
        held = {"final": content.weights, "optimiser_state": content.optimiser_state}
        return cls(model=model, input_shape=input_shape, **held | known)

    @classmethod
    def load(cls, path: Path | str) -> "AttackerView":
        """Load what :meth:`save` wrote; secrets in files of earlier versions are dropped."""
        with refuse_misfits(path, "view"):
            network = load_network(path, "view")
            facts = {name: value for name, value in network.get("training", {}).items() if name not in SECRETS}
            network["training"] = PublicTraining.from_facts(facts)
            return cls(model=network["architecture"].build(network["input_shape"], network.pop("outputs")), **network)


def _move(weights: Weights, device: str | torch.device) -> Weights:
    """Return weights on ``device``; the same mapping where all of them are there already."""
    moved = {name: tensor.to(device) for name, tensor in weights.items()}
    return moved if any(moved[name] is not weights[name] for name in weights) else weights


def pack_weights(
    final: Weights,
    initial: Weights | None,
    offset: Tensor | None,
    gradient: Weights | None = None,
    state: OptimiserState | None = None,
) -> dict[str, Tensor]:
    """Return the tensors of a saved network by name; :func:`load_network` reads them back."""
    parts = {
        "final": final,
        "initial": initial,
        "gradient": gradient,
        "optimiser_state": None if state is None else state.first_moment,
        "second_moment": None if state is None else state.second_moment,
    }
    packed = drop_none(offset=offset)
    for name, weights in parts.items():
        packed |= add_prefix(name, weights or {})
    return packed


def describe_evidence(gradient: Weights | None, state: OptimiserState | None) -> dict[str, Any]:
    """Return the values of a saved network about its gradient and its optimiser's state, where it has them.

    The names of the parameters are among them: a file that lost some is then known to be incomplete.
    """
    described: dict[str, Any] = {} if gradient is None else {"gradient": sorted(gradient)}
    if state is not None:
        described["optimiser_state"] = state.describe() | {"parameters": sorted(state.first_moment)}
        if state.second_moment:
            described["second_moment"] = sorted(state.second_moment)
    return described


def load_network(path: Path | str, kind: str) -> dict[str, Any]:
    """Load the fields that a saved view and a saved victim share, with everything else in the file as it is."""
    values, tensors = load_bundle(Path(path), kind)
    network = values | {
        "architecture": Architecture.from_description(values["architecture"]),
        "input_shape": tuple(values["input_shape"]),
        "bounds": read_bounds(values["bounds"]),
        "offset": tensors.get("offset"),
        "initial": select_prefix(tensors, "initial") or None,
        "final": select_prefix(tensors, "final"),
    }
    names = ("gradient", "optimiser_state", "second_moment")
    gradient, moment, squares = (select_prefix(tensors, name) for name in names)
    state = dict(values.get("optimiser_state", {}))
    expected = (values.get("gradient", []), state.pop("parameters", []), network.pop("second_moment", []))
    if tuple(map(sorted, (gradient, moment, squares))) != expected:
        raise RecordError(f"{path} lacks a part of its gradient or of its optimiser's state.")
    if gradient:
        network["gradient"] = gradient
    if "more_gradients" in values:
        network["more_gradients"] = tuple(
            GradientAt(
                weights=select_prefix(tensors, f"more_gradients/{number}/weights"),
                gradient=select_prefix(tensors, f"more_gradients/{number}/gradient"),
            )
            for number in range(values["more_gradients"])
        )
    if moment:
        network["optimiser_state"] = OptimiserState(first_moment=moment, second_moment=squares, **state)
    return network
