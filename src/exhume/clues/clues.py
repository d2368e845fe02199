"""What anybody can read off a view before any attack runs, computed once per view.

``clues_of(view)`` computes each clue on first use and remembers it with the view, so that an assessment and the attacks
that follow share one singular value decomposition.
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from exhume.clues.evidence import Evidence, find_evidence
from exhume.clues.first_layer import FLAT_SIDED, FirstLayer, read_first_layer
from exhume.clues.gate_layer import read_gate_layers
from exhume.clues.homogeneity import degree_of_homogeneity
from exhume.clues.span import span_of_final_weights
from exhume.clues.start_noise import upper_layers_look_random
from exhume.clues.subspace import InputSubspace, find_subspace
from exhume.core.errors import Refusal
from exhume.records import AttackerView

T = TypeVar("T")


def _once(compute: Callable[["Clues"], T]) -> Callable[["Clues"], T]:
    """Compute a clue on first use and remember it with the view; a refusal is remembered and raised again."""

    @functools.wraps(compute)
    def remembered(clues: "Clues") -> T:
        known, name = clues.known_clues, compute.__name__
        if name not in known:
            try:
                known[name] = compute(clues)
            except Refusal as reason:
                known[name] = Refusal(str(reason))
        value = known[name]
        if isinstance(value, Refusal):
            raise Refusal(str(value))  # a new one: raising the same object again would collect tracebacks
        return value  # type: ignore[no-any-return]

    return remembered


@dataclass(frozen=True)
class Clues:
    """The clues of one view. Properties are None where a clue does not show; ``require_…`` methods refuse instead."""

    view: AttackerView
    known_clues: dict[str, Any]
    """Clues computed so far, by name; kept with the view."""

    @_once
    def require_first_layer(self) -> FirstLayer:
        """Return the first trained layer.

        Raises:
            Refusal: when the view has no sum of gradients, nothing changed, or the first trained layer is not dense.
        """
        return self._first_layers()[0]

    @_once
    def _first_layers(self) -> list[FirstLayer]:
        """Return the first trained layer as each piece of evidence shows it, the best evidence first."""
        layers, reason = [], None
        for evidence in find_evidence(self.view):
            try:
                layers.append(read_first_layer(self.view, evidence))
            except Refusal as refusal:
                reason = reason or refusal
        if not layers:
            assert reason is not None
            raise reason
        return layers

    @_once
    def require_subspace(self) -> InputSubspace:
        """Return the subspace of the inputs of the first trained layer, from the evidence that shows most of them.

        Raises:
            Refusal: when there is no such layer, or no evidence shows a rank.
        """
        found, reasons = [], []
        for layer in self._first_layers():
            try:
                found.append(find_subspace(layer))
            except Refusal as refusal:
                reasons.append(str(refusal))
        if not found:
            raise Refusal(" ".join(reasons))
        return max(found, key=lambda subspace: (subspace.is_clear, subspace.rank))  # the first of equals

    @_once
    def require_gate_layers(self) -> list[FirstLayer]:
        """Return the layers whose gates give their inputs away, those whose inputs stood still first.

        Raises:
            Refusal: when the view has no sum of gradients, or no layer has such gates.
        """
        layers, reason = [], None
        for evidence in find_evidence(self.view):
            try:
                layers += self._gate_layers(evidence)
            except Refusal as refusal:
                reason = reason or refusal
        if not layers:
            assert reason is not None
            raise reason
        return sorted(layers, key=lambda layer: not layer.inputs_stood_still)

    def _gate_layers(self, evidence: Evidence) -> list[FirstLayer]:
        """Return the first trained layer if it has gates, else every layer with gates above it."""
        if not evidence.trained():
            read_first_layer(self.view, evidence)  # refuses with the reason
        first = [layer for layer in self._readable_first_layers() if layer.evidence.kind == evidence.kind]
        return first if first and first[0].activation in FLAT_SIDED else read_gate_layers(self.view, evidence)

    def _readable_first_layers(self) -> list[FirstLayer]:
        """Return the first trained layer as each piece of evidence shows it; empty where it is not dense."""
        try:
            return self._first_layers()
        except Refusal:
            return []

    @_once
    def require_gate_subspace(self) -> InputSubspace:
        """Return the subspace of the inputs of the layer that gives most away: the lowest one with a clear rank.

        Raises:
            Refusal: when there is no such layer, or none shows a rank.
        """
        layers = self.require_gate_layers()
        known = self._readable_first_layers()
        if len(layers) == len(known) and all(any(layer is one for one in known) for layer in layers):
            return self.require_subspace()
        found, reasons = [], []
        for layer in layers:
            try:
                found.append(find_subspace(layer))
            except Refusal as refusal:
                reasons.append(str(refusal))
                continue
            if found[-1].is_clear and layer.inputs_stood_still:
                break
        if not found:
            raise Refusal(" ".join(reasons))
        return max(found, key=lambda subspace: (subspace.is_clear, subspace.layer.inputs_stood_still, subspace.rank))

    @property
    def gate_subspace(self) -> InputSubspace | None:
        """The subspace of the inputs of the layer that the certificate reads; None where it does not show."""
        try:
            return self.require_gate_subspace()
        except Refusal:
            return None

    @property
    def subspace(self) -> InputSubspace | None:
        """The subspace of the inputs of the first trained layer; None where it does not show."""
        try:
            return self.require_subspace()
        except Refusal:
            return None

    @property
    def evidence_kind(self) -> str | None:
        """The kind of evidence by which the inputs' subspace shows; None where it does not."""
        return None if self.subspace is None else self.subspace.layer.evidence.kind

    @property
    @_once
    def span(self) -> InputSubspace | None:
        """The subspace of the inputs, from the weight change or else from the final weights; None: hidden.

        A change without visible rank (after Adam, say) does not rule out that the final weights show one.
        """
        return self.subspace or span_of_final_weights(self.view)

    @property
    @_once
    def upper_layers_look_random(self) -> bool:
        """Whether the layers between the first and the last still show their random start and the first does not."""
        return upper_layers_look_random([name for name, _ in self.view.model.named_parameters()], self.view.final)

    @property
    @_once
    def degree_of_homogeneity(self) -> int | None:
        """The ``L`` of ``f(cθ; x) = c^L·f(θ; x)`` for ``c > 0``; None where the network is not homogeneous."""
        return degree_of_homogeneity(self.view)

    @property
    @_once
    def movement(self) -> float | None:
        """The norm of the weight change relative to that of the initial weights; None without initial weights."""
        initial = self.view.initial
        if initial is None:
            return None
        floating = [name for name, weight in self.view.final.items() if weight.is_floating_point()]
        moved = _norm(self.view.final[name].double() - initial[name].double() for name in floating)
        return moved / max(_norm(initial[name].double() for name in floating), torch.finfo(torch.float64).tiny)

    @property
    def has_batch_norm(self) -> bool:
        """Whether the examples of a batch influence each other's gradients."""
        return self._contains(_BatchNorm)

    @property
    def has_dropout(self) -> bool:
        """Whether every training step used another random part of the network."""
        return self._contains(_DropoutNd)

    @property
    def coarse_weights(self) -> str | None:
        """The name of the type of the final weights where it has fewer bits than float32."""
        for weight in self.view.final.values():
            if weight.is_floating_point() and weight.element_size() < 4:
                return str(weight.dtype).removeprefix("torch.")
        return None

    def known(self, fact: str) -> str:
        """Return a publicly known fact about the training in lower case; empty where it is unknown."""
        return str(self.view.training.facts().get(fact, "")).lower()

    def _contains(self, kind: type[nn.Module]) -> bool:
        return any(isinstance(module, kind) for module in self.view.model.modules())


Remark = Callable[[Clues], str | None]
"""Returns a sentence about a network, or None."""


def clues_of(view: AttackerView) -> Clues:
    """Return the clues of a view; those computed once are remembered as long as the view lives."""
    # Kept in the instance and not by value: views are compared by all their weights and have no hash.
    return Clues(view, vars(view).setdefault("_clues", {}))


def _norm(parts: Iterable[Tensor]) -> float:
    squares = sum(float(part.square().sum()) for part in parts)
    return math.sqrt(squares)
