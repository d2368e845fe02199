"""The first layer that training changed: its weights, its sum of gradients, and the signals that reach it.

Under (S)GD, with or without momentum and mini-batches, for any loss and any layers above, a dense layer moves only
inside the span of its inputs: ``[ΔW; Δb] = Σ_i [x_i; 1] γ_iᵀ``. A single gradient has this form, and so has the decayed
sum of gradients that an optimiser keeps, Adam included. The other clues start from this fact.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.clues.evidence import Evidence, find_evidence
from exhume.core.errors import Refusal
from exhume.models.structure import DenseLayer, Step, first_trained
from exhume.records import AttackerView, Weights

FLAT_SIDED = ("relu", "relu6")
"""Activations whose derivative is exactly zero on one side."""

Signals = Callable[[Float[Tensor, "candidate unit"]], Float[Tensor, "candidate output unit"]]
"""From a layer's pre-activations ``z`` to the gradients ``∂f_c/∂z`` of every output."""

SHORT_FORMATS = (torch.bfloat16, torch.float16)
"""Formats to which an update may be rounded on its way, the coarsest first."""
LEAST_ENTRIES = 100
"""Number of entries of a weight change that must tell a short format from chance: each fits by chance in at most one
case of two."""

UNREADABLE = (
    "The structure of this model cannot be read (torch.fx cannot trace it); wrap it so that forward() has no "
    "conditions on data and returns a tensor."
)
"""Why an attack that reads layers refuses a model."""


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """A sum of gradients of one dense layer and its weights, in float64, the bias (if trained) as the last column.

    With a bias, an input ``x`` is represented as ``[x, 1]``.
    """

    name: str
    activation: str | None
    """The lower-case name of the activation that directly follows the layer; None where none does."""
    reads_input: bool
    """Whether the layer reads the network's raw input rather than frozen features."""
    has_bias: bool
    """Whether a bias was trained."""
    has_frozen_bias: bool = False
    """Whether the layer has a bias that did not change though its weights did."""
    evidence: Evidence
    """The sums of gradients of all parameters."""
    before: Float[Tensor, "unit value"]
    """The weights at the first step of the sum."""
    after: Float[Tensor, "unit value"]
    """The weights at its last step."""
    measured: Float[Tensor, "unit value"]
    """What holds the sum: the final weights, a gradient, or a first moment."""
    reference: Float[Tensor, "unit value"]
    """The weights of which ``measured`` may contain a multiple."""
    squares: Float[Tensor, "value unit"] | None = None
    """A sum of the squares of all gradients of the training, in units of :attr:`change`; None where it is not known."""
    precision: float = 0.0
    """Spacing of the numbers in which the sum itself was stored or sent, relative to their size; 0 for the difference
    of two sets of weights."""
    inputs_stood_still: bool = True
    """Whether the inputs of the layer were the same in all gradients of the sum."""
    weight_scale: float = 1.0
    """Factor that the layer applies to its weights (NTK parameterisation); all matrices include it."""
    decay_factor: float = 1.0
    """The multiple of the reference in ``measured``. For a weight change, the factor by which weight decay shrank the
    initial weights (1 without weight decay); for a gradient or a first moment, what weight decay added (0 without)."""

    @property
    def change(self) -> Float[Tensor, "value unit"]:
        """The part of the sum that the inputs caused, ``Σ_i [x_i; 1] γ_iᵀ``; one column per unit."""
        moved = (self.measured - self.decay_factor * self.reference).T
        # A scaled weight moves by scale·γxᵀ and acts through the scale once more; the bias is not scaled.
        moved[: self.input_size] /= self.weight_scale**2
        return moved

    @property
    def rounding(self) -> float:
        """Standard deviation of rounding in an entry of a gradient, a first moment or a change that was sent alone.

        Every such entry was rounded to its own precision. Noise measured from small singular values can be far less,
        where inputs have equal values and rounding repeats. A weight change that was never rounded itself has noise
        from the size of the weights, and 0 here.
        """
        if self.precision == 0.0:
            return 0.0
        change = self.change
        size: float = change.square().sum().item() / max(1, int((change != 0).sum()))
        # A number that is rounded once to a short format is off by at most half a spacing, evenly distributed. The sums
        # of a gradient in its own format round many times.
        is_once = any(self.precision == torch.finfo(short).eps for short in SHORT_FORMATS)
        return self.precision * math.sqrt(size) / (math.sqrt(12) if is_once else 1.0)

    @property
    def input_size(self) -> int:
        """The number of values in one input of the layer."""
        return self.before.shape[1] - int(self.has_bias)


def read_first_layer(view: AttackerView, evidence: Evidence | None = None) -> FirstLayer:
    """Read the first trained layer off a view, with the sum of gradients of ``evidence`` (None: the best there is).

    Raises:
        Refusal: when the view has no sum of gradients, nothing changed, or the first trained layer is not dense.
    """
    evidence = evidence or find_evidence(view)[0]
    changed = evidence.trained()
    if not changed:
        raise Refusal(
            "The initial and the final weights are the same: nothing was trained."
            if evidence.kind == "weight change"
            else f"The {evidence.kind} is zero in every parameter: it holds no trace of any input."
        )
    found = first_trained(view.model, changed)
    if found is None:
        raise Refusal(UNREADABLE)
    step, following = found
    if step.layer is None:
        raise Refusal(
            f"The first trained layer, {step.name!r}, is not a dense layer; its inputs cannot be read off it."
        )
    if step.layer.weight not in changed:
        raise Refusal(f"The {evidence.kind} says nothing about the weights of the first trained layer, {step.name!r}.")
    return read_layer(view, evidence, step, following, changed)


def read_layer(
    view: AttackerView,
    evidence: Evidence,
    step: Step,
    following: Step | None,
    changed: set[str],
    *,
    inputs_stood_still: bool = True,
) -> FirstLayer:
    """Read one dense layer off a view, with the step that follows it and the parameters that training changed."""
    assert step.layer is not None
    parts = (evidence, *evidence.others)
    return FirstLayer(
        name=step.name,
        activation=following.name if following is not None and following.kind == "activation" else None,
        reads_input=_reads_input(view, step),
        has_bias=step.layer.bias is not None and step.layer.bias in changed,
        has_frozen_bias=step.layer.bias is not None and step.layer.bias not in changed,
        evidence=evidence,
        before=_stack([part.before for part in parts], step.layer, changed),
        after=_stack([part.after for part in parts], step.layer, changed),
        measured=_stack([part.measured for part in parts], step.layer, changed, equally=True),
        reference=_stack([part.reference for part in parts], step.layer, changed),
        squares=_read_squares(evidence, step.layer, changed),
        precision=_precision(evidence, step.layer.weight),
        inputs_stood_still=inputs_stood_still,
        weight_scale=step.layer.weight_scale,
        decay_factor=evidence.factor,
    )


def stored_precision(tensor: Float[Tensor, "..."]) -> float:
    """Return the spacing of the numbers in which a tensor was stored or sent, relative to their size.

    A gradient that was rounded to float16 or bfloat16 on its way fits these formats exactly, whatever holds it now.
    """
    for short in SHORT_FORMATS:
        if torch.equal(tensor.to(short).to(tensor.dtype), tensor):
            return torch.finfo(short).eps
    return torch.finfo(tensor.dtype).eps


def _precision(evidence: Evidence, name: str) -> float:
    """Return the precision of one parameter's sum of gradients; 0 for the difference of two sets of weights."""
    if evidence.kind != "weight change":
        return stored_precision(evidence.measured[name])
    # A change that was rounded and then added to the weights fits a short format up to the rounding of the weights.
    change, weights = evidence.change(name), evidence.measured[name]
    slack = torch.finfo(weights.dtype).eps * torch.maximum(weights.abs(), evidence.reference[name].abs()).double()
    for short in SHORT_FORMATS:
        tells = torch.finfo(short).eps * change.abs() > 8 * slack
        fits = (change.to(short).double() - change).abs() <= slack
        if int(tells.sum()) >= LEAST_ENTRIES and bool(fits[tells].all()):
            return torch.finfo(short).eps
    return 0.0


def _stack(parts: Sequence[Weights], layer: DenseLayer, changed: set[str], equally: bool = False) -> Tensor:
    """Return the layer's weights at each of several points, as units below one another.

    Gradients of the same inputs at other weights are further units for the same inputs: ``Σ_i [x_i; 1] (γ_i, γ'_i)ᵀ``.
    ``equally``: scale each part to the size of the first, since the loss falls between rounds.
    """
    blocks = [_with_bias(part, layer, changed) for part in parts]
    if equally:
        size = blocks[0].norm()
        blocks = [block * (size / block.norm().clamp(min=1e-300)) for block in blocks]
    return torch.cat(blocks)


def _read_squares(evidence: Evidence, layer: DenseLayer, changed: set[str]) -> Tensor | None:
    """Return the layer's sum of squared gradients, with its bias as the last row where the bias was trained."""
    needed = {layer.weight} | ({layer.bias} & changed)
    if evidence.squares is None or not needed <= evidence.squares.keys():
        return None
    squares = {name: evidence.squares[str(name)].double() for name in needed}
    columns = [squares[layer.weight] / layer.weight_scale**2]
    return torch.cat(columns + [squares[name][:, None] for name in needed if name != layer.weight], dim=1).T


def _with_bias(tensors: Weights, layer: DenseLayer, changed: set[str]) -> Tensor:
    """Return the layer's effective weights, with its bias as the last column where the bias was trained."""
    weight = tensors[layer.weight].double() * layer.weight_scale
    if layer.bias is None or layer.bias not in changed:
        return weight
    return torch.cat([weight, tensors[layer.bias].double()[:, None]], dim=1)


def _reads_input(view: AttackerView, step: Step) -> bool:
    """Check with a probe whether the layer's input is the raw network input."""
    probe = torch.arange(1.0, view.input_size + 1).reshape(1, *view.input_shape)
    seen = layer_inputs(view.module(view.final).float().cpu(), step.name, probe)
    return seen.numel() == probe.numel() and torch.equal(seen.flatten(), probe.flatten())


def layer_inputs(model: nn.Module, layer: str, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "..."]:
    """Return what a layer reads when ``model`` is called with network inputs."""
    seen: list[Tensor] = []
    handle = model.get_submodule(layer).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        handle.remove()
    return seen[0]


def backward_signals(view: AttackerView, weights: Weights, layer: FirstLayer) -> Signals:
    """Return the function from the layer's pre-activations to the gradients of the outputs, for any layers above.

    Where a layer stands for gradients at several weights, its units are those of all of them.
    """
    if layer.evidence.others:
        parts = [replace(part, others=()) for part in (layer.evidence, *layer.evidence.others)]
        each = [backward_signals(view, part.after, replace(layer, evidence=part)) for part in parts]

        def stacked(activity: Tensor) -> Tensor:
            blocks = activity.chunk(len(each), dim=1)
            return torch.cat([signal(block) for signal, block in zip(each, blocks, strict=True)], dim=2)

        return stacked
    model = view.module({name: w.double() if w.is_floating_point() else w for name, w in weights.items()})
    module = model.get_submodule(layer.name)

    def signals(activity: Tensor, placeholders: int | None = None) -> Tensor:
        leaf = activity.detach().to(next(model.parameters()).dtype).requires_grad_()
        handle = module.register_forward_hook(lambda *_: leaf)
        count = (1 if one_is_enough else len(leaf)) if placeholders is None else placeholders
        try:
            with torch.enable_grad():
                placeholder = torch.zeros(count, *view.input_shape, dtype=leaf.dtype, device=leaf.device)
                outputs = model(placeholder).reshape(len(leaf), -1)
                columns = [
                    torch.autograd.grad(outputs[:, c].sum(), leaf, retain_graph=c + 1 < outputs.shape[1])[0]
                    for c in range(outputs.shape[1])
                ]
        finally:
            handle.remove()
        return torch.stack(columns, dim=1).to(activity.dtype)

    # The layers below run on placeholders, whose values do not matter. One of them saves time where the layers above
    # depend on the batch through the layer alone.
    one_is_enough = False
    if not layer.reads_input:
        probe = torch.randn(3, len(layer.before), generator=torch.Generator().manual_seed(0)).to(layer.before)
        with contextlib.suppress(RuntimeError):
            one_is_enough = torch.equal(signals(probe, 1), signals(probe, 3))
    return signals
