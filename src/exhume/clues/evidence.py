"""The sums of gradients that a view holds: a weight change, a gradient, or the first moment of an optimiser.

Each of them is ``Σ_i [x_i; 1] γ_iᵀ`` on a dense layer, plus a multiple of some weights where weight decay acts. They
differ in the steps that they sum over, and so in the weights that decide which units were on.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.core.errors import Refusal
from exhume.records import AttackerView, Weights

Kind = Literal["gradient", "optimiser state", "weight change"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """One sum of gradients: ``measured − factor·reference``."""

    kind: Kind
    measured: Weights
    """The tensors that hold the sum, by parameter name: a gradient, a first moment, or the final weights."""
    reference: Weights
    """The weights of which ``measured`` may contain a multiple."""
    factor: float
    """The multiple of the reference that ``measured`` contains without weight decay: 1 for a weight change, else 0."""
    before: Weights
    """The weights at the first step of the sum, as far as they are known."""
    after: Weights
    """The weights at its last step."""
    steps: int | None = None
    """The number of steps that the sum shows, as far as it is known."""
    squares: Weights | None = None
    """A sum of the squares of all gradients of the training; None where no optimiser keeps it."""
    others: tuple["Evidence", ...] = ()
    """Gradients of the same inputs at other weights."""

    @property
    def is_local(self) -> bool:
        """Whether all gradients of the sum are taken to be at the same weights."""
        return self.before is self.after

    def change(self, name: str, factor: float | None = None) -> Float[Tensor, "..."]:
        """Return the sum for one parameter, in float64: the difference of float32 weights then loses no digits.

        ``factor`` replaces the multiple of the reference where weight decay changed it.
        """
        kept = self.factor if factor is None else factor
        measured = self.measured[name].double()
        return measured if kept == 0.0 else measured - kept * self.reference[name].double()

    def trained(self) -> set[str]:
        """Return the names of the parameters whose sum is not zero."""
        floating = (name for name, tensor in self.measured.items() if tensor.is_floating_point())
        return {name for name in floating if bool((self.change(name) != 0).any())}


def find_evidence(view: AttackerView) -> tuple[Evidence, ...]:
    """Return the sums of gradients that a view holds, those with the most certain gates first.

    Raises:
        Refusal: when there are none.
    """
    # A linearised network has the gradients of its initial weights whatever its final ones are.
    here = view.initial if view.linearised and view.initial is not None else view.final
    found = []
    if view.gradient is not None:
        others = tuple(_at(other.weights, "gradient", other.gradient) for other in view.more_gradients)
        found.append(replace(_at(here, "gradient", view.gradient), steps=1, others=others))
    if view.optimiser_state is not None:
        state = view.optimiser_state
        precision = max(torch.finfo(moment.dtype).eps for moment in state.first_moment.values())
        window = state.window(precision)
        known = _at(here, "optimiser state", state.first_moment)
        found.append(replace(known, steps=window, squares=state.second_moment or None))
    if view.initial is not None:
        initial, final = view.initial, view.final
        # The gradient of a single step was taken at the initial weights alone.
        after = initial if view.training.steps == 1 else final
        found.append(
            Evidence(kind="weight change", measured=final, reference=initial, factor=1.0, before=initial, after=after)
        )
    if not found:
        raise Refusal(
            "This attack needs a sum of gradients, and the view has no initial weights, no gradient and no optimiser "
            "state."
        )
    return tuple(found)


def _at(weights: Weights, kind: Kind, gradient: Weights) -> Evidence:
    return Evidence(kind=kind, measured=gradient, reference=weights, factor=0.0, before=weights, after=weights)
