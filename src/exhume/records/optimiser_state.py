"""OptimiserState: the part of an optimiser's memory that is a decayed sum of gradients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

from exhume.core.errors import WeightsError
from exhume.core.weight_files import is_plain
from exhume.records.parameter_numbers import match_parameters
from exhume.records.record import Record
from exhume.records.weights import Weights

SIGNATURES: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = tuple(
    (name, frozenset(settings.split()), frozenset(slots.split()))
    for name, settings, slots in (
        ("Adafactor", "scale_parameter", ""),
        ("Adafactor", "beta2_decay", ""),
        ("NAdam", "momentum_decay", "exp_avg"),
        ("RMSprop", "alpha centered", "square_avg"),
        ("Adagrad", "lr_decay", "sum"),
        ("Adadelta", "rho", "acc_delta"),
        ("Muon", "ns_steps", "momentum_buffer"),
        ("Adamax", "betas", "exp_inf"),
        ("Adam", "betas eps amsgrad", "exp_avg"),
        ("RAdam", "betas eps capturable", "exp_avg"),
        ("Lion", "betas", "exp_avg"),
        ("SGD", "momentum nesterov", ""),
    )
)
"""Optimisers with settings and memory that tell them apart, the most particular first; files do not name them."""
SLOTS = ("exp_avg", "momentum_buffer", "grad_avg")
"""Names of decayed sums of gradients: Adam's family and Lion, SGD and Muon, centred RMSprop."""
SQUARES = "exp_avg_sq"
"""Name of the decayed sum of squared gradients of Adam's family."""
RESCALED = {"RMSprop": ("momentum_buffer",), "Adafactor": ("exp_avg",)}
"""Memory of the same names that sums gradients *after* each entry was rescaled, which hides the inputs' span."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimiserState(Record):
    """The first moment that an optimiser keeps of each parameter, and what its file states about the training.

    SGD's ``momentum_buffer`` and Adam's ``exp_avg`` are sums of the last gradients with geometrically falling weights.
    Each is therefore a gradient of the data of the last steps.
    """

    first_moment: Weights
    """The sum of gradients of each parameter, by the parameter's name; frozen parameters are absent."""
    second_moment: Weights = field(default_factory=dict)
    """The sum of squared gradients of each parameter, as Adam's family keeps it; empty where there is none."""
    slot: str | None = None
    """The name under which the optimiser stores the sum, such as ``exp_avg``."""
    optimiser: str | None = None
    """The name of the optimiser where the file tells, such as ``AdamW``."""
    steps: int | None = None
    """The number of steps taken."""
    lr: float | None = None
    """The learning rate at the last step."""
    decay: float | None = None
    """Weight of the sum of the previous step: ``β1`` or the momentum (Lion: ``β2``)."""
    second_decay: float | None = None
    """``β2`` of Adam's family."""
    eps: float | None = None
    """What Adam's family adds to the root of the second moment."""
    weight_decay: float | None = None

    def window(self, precision: float) -> int | None:
        """Return the number of last steps whose gradients show at a relative precision; None where it is not known."""
        if self.decay is None or not 0 < self.decay < 1:
            return self.steps if self.decay is None else 1
        steps = math.ceil(math.log(precision) / math.log(self.decay))
        return steps if self.steps is None else min(steps, self.steps)

    def last_step(self) -> Weights:
        """Return the direction of the last step of each parameter, without its length and without weight decay.

        Empty where it is not known: for other optimisers than Adam, AdamW and SGD, or without their settings.
        """
        if self.optimiser == "SGD":
            return self.first_moment
        known = (self.second_decay, self.eps, self.steps)
        if self.optimiser not in ("Adam", "AdamW") or None in known or not self.second_moment:
            return {}
        decay, eps, steps = (float(value) for value in known if value is not None)
        correction = 1 - decay**steps
        if not correction > 0:
            return {}
        return {
            name: moment / ((self.second_moment[name] / correction).clamp(min=0).sqrt() + eps)
            for name, moment in self.first_moment.items()
            if name in self.second_moment
        }

    def describe(self) -> dict[str, Any]:
        """Return everything but the tensors, as JSON values."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("first_moment", "second_moment")}
        return {name: value for name, value in facts.items() if value is not None}

    def with_moments(self, first: Weights, second: Weights | None = None) -> "OptimiserState":
        """Return the same state with other tensors."""
        return OptimiserState(first_moment=first, second_moment=second or {}, **self.describe())

    def cpu(self) -> "OptimiserState":
        """Return a copy on the CPU."""
        moments = (self.first_moment, self.second_moment)
        first, second = ({name: one.detach().cpu().clone() for name, one in moment.items()} for moment in moments)
        return self.with_moments(first, second)


def read_state(state: Any, model: nn.Module) -> OptimiserState:
    """Return a state that users may give as PyTorch's ``optimizer.state_dict()``, or as first moments by name.

    Raises:
        WeightsError: when the state does not belong to the model, or holds no sum of gradients.
    """
    if isinstance(state, OptimiserState):
        return state
    if isinstance(state, Mapping) and "param_groups" in state and "state" in state:
        return read_torch_state(state, model)
    if not isinstance(state, Mapping) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise WeightsError(
            "An optimiser's state is PyTorch's optimizer.state_dict(), or a tensor for each parameter's name."
        )
    return OptimiserState(first_moment=state)


def read_torch_state(content: Mapping[str, Any], model: nn.Module) -> OptimiserState:
    """Read the first moments out of a PyTorch optimiser's ``state_dict()``.

    Raises:
        WeightsError: when there are none, or they do not belong to the model.
    """
    try:
        groups = [dict(group) for group in content["param_groups"]]
        numbers = [[int(number) for number in group["params"]] for group in groups]
        memory = {int(number): dict(slots) for number, slots in content["state"].items()}
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError("The optimiser's state has no parameter groups as PyTorch writes them.") from error
    if not groups:
        raise WeightsError("The optimiser's state has no parameter groups.")
    optimiser = name_optimiser(groups[0], memory.values())
    slot = _choose_slot(optimiser, memory)
    moments = {number: slots[slot] for number, slots in memory.items() if _is_readable(slots.get(slot))}
    squares = {number: slots[SQUARES] for number, slots in memory.items() if _is_readable(slots.get(SQUARES))}
    if all(isinstance(group.get("param_names"), Sequence) for group in groups):
        named = {
            number: str(name)
            for group, listed in zip(groups, numbers, strict=True)
            for number, name in zip(listed, group["param_names"], strict=False)
        }
    else:
        named = match_parameters(model, numbers, {number: moment.shape for number, moment in moments.items()})
    betas = groups[0].get("betas")
    other = "alpha" if slot == "grad_avg" else "momentum"
    first, second = betas if betas is not None and _are_numbers(betas) else (groups[0].get(other), None)
    return OptimiserState(
        first_moment={named[number]: moment.detach() for number, moment in moments.items() if number in named},
        second_moment={
            named[number]: square.detach()
            for number, square in squares.items()
            if number in named and number in moments and square.shape == moments[number].shape
        },
        slot=slot,
        optimiser=optimiser,
        steps=_number_of_steps(memory.values()),
        lr=_as_number(groups[0].get("lr")),
        decay=_as_number(second if optimiser == "Lion" else first),
        second_decay=_as_number(second),
        eps=_as_number(groups[0].get("eps")),
        weight_decay=_as_number(groups[0].get("weight_decay")),
    )


def name_optimiser(group: Mapping[str, Any], memory: Any) -> str | None:
    """Name the optimiser that writes such settings and such memory; None where none is known to.

    >>> name_optimiser({"betas": (0.9, 0.99), "lr": 1e-4}, [{"exp_avg": None}])
    'Lion'
    """
    slots = frozenset(chain_names(memory))
    for name, settings, needed in SIGNATURES:
        if settings <= group.keys() and needed <= slots:
            return "AdamW" if name == "Adam" and group.get("decoupled_weight_decay") else name
    return None


def chain_names(memory: Any) -> set[str]:
    """Return the names of all slots of an optimiser's memory."""
    return {str(name) for slots in memory for name in slots}


def _choose_slot(optimiser: str | None, memory: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the slot with a sum of gradients."""
    held = {str(name) for slots in memory.values() for name, value in slots.items() if isinstance(value, Tensor)}
    sums = [slot for slot in SLOTS if slot in held and slot not in RESCALED.get(optimiser or "", ())]
    if sums:
        return sums[0]
    who = optimiser or "This optimiser"
    if not memory:
        raise WeightsError(f"{who} had no memory of gradients when this state was saved.")
    if optimiser in RESCALED and held & set(RESCALED[optimiser]):
        raise WeightsError(
            f"{who} sums gradients after rescaling each entry, and the sum no longer lies in the span of the inputs."
        )
    squares = sorted(held & {"sum", "exp_avg_sq", "square_avg", "acc_delta", "row_var"})
    if squares:
        raise WeightsError(
            f"{who} keeps squares of gradients ({squares[0]}), which lost the signs, and no sum of them."
        )
    raise WeightsError(f"{who} keeps no sum of gradients; SGD needs momentum for one.")


def _number_of_steps(memory: Any) -> int | None:
    counts = [slots["step"] for slots in memory if "step" in slots]
    numbers = [number for count in counts if (number := _as_number(count)) is not None]
    return int(max(numbers)) if numbers else None


def _are_numbers(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(_as_number(one) is not None for one in pair)


def _is_readable(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_nested  # a nested tensor has no shape


def _as_number(value: Any) -> float | None:
    """Return a finite number of a file; None for anything else."""
    if isinstance(value, Tensor) and value.numel() == 1 and is_plain(value) and value.device.type != "meta":
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
