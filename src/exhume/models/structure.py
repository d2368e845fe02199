"""What can be read off a module without running it: is it a stack of dense layers, and what feeds a given layer.

Read through ``torch.fx``, so a ``class Net(nn.Module)`` with ``F.relu(self.fc1(x.flatten(1)))`` is understood as well
as an ``nn.Sequential``.
"""

import operator
from dataclasses import dataclass

from torch import fx, nn

from exhume.models.mlp import ScaledLinear

# What only moves values around, or does nothing to a network in evaluation mode.
_SHAPE_MODULES = (nn.Flatten, nn.Identity, nn.Dropout)
_SHAPE_CALLS = {
    "flatten",
    "view",
    "reshape",
    "squeeze",
    "size",
    "contiguous",
    "float",
    "to",
    "getattr",
    "getitem",
    "dropout",
}
_RELU_CALLS = {"relu", "relu_"}


@dataclass(frozen=True)
class DenseLayer:
    """One dense layer of a stack: the names of its parameters and how they are scaled on use."""

    weight: str
    bias: str | None
    weight_scale: float = 1.0


@dataclass(frozen=True)
class DenseStack:
    """Dense layers with one elementwise activation after each but the last.

    ``activation`` is the lower-case class name of the activation module (``relu``), or None for a single layer.
    """

    layers: tuple[DenseLayer, ...]
    activation: str | None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, ScaledLinear) or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True)
class Step:
    """One step of a chain: ``kind`` is ``dense``, ``activation``, ``shape`` or ``other``; ``name`` tells which."""

    kind: str
    name: str
    layer: DenseLayer | None = None


def chain(model: nn.Module) -> list[Step] | None:
    """Return the steps from input to output when each feeds only the next; None for branching or untraceable models."""
    try:
        graph = _Tracer().trace(model)
    except Exception:  # torch.fx raises many kinds on control flow that depends on data
        return None
    modules = dict(model.named_modules())
    steps: list[Step] = []
    previous: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if previous is not None:
                return None
            previous = node
            continue
        if node.op == "output":
            return steps if node.args[0] is previous else None
        step = _step(node, modules)
        if step.kind == "size":  # x.size(0), x.shape[0]: arithmetic about the input beside the chain
            continue
        if previous not in node.all_input_nodes or any(
            other is not previous and other.op != "call_method" and other.target not in (getattr, operator.getitem)
            for other in node.all_input_nodes
        ):
            return None
        steps.append(step)
        previous = node
    return None


def _step(node: fx.Node, modules: dict[str, nn.Module]) -> Step:
    if node.op == "call_module":
        name = str(node.target)
        module = modules[name]
        if isinstance(module, nn.Linear):
            scale = module.weight_scale if isinstance(module, ScaledLinear) else 1.0
            bias = None if module.bias is None else f"{name}.bias"
            return Step("dense", name, DenseLayer(f"{name}.weight", bias, scale))
        if isinstance(module, _SHAPE_MODULES):
            return Step("shape", name)
        is_activation = type(module).__module__ == "torch.nn.modules.activation"
        return Step(
            "activation" if is_activation else "other", type(module).__name__.lower() if is_activation else name
        )
    called = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))
    if called in ("size", "getattr", "getitem"):
        return Step("size", called)
    if called in _SHAPE_CALLS:
        return Step("shape", called)
    if called in _RELU_CALLS:
        return Step("activation", "relu")
    activations = {"leaky_relu": "leakyrelu"} | {n: n for n in ("gelu", "silu", "tanh", "sigmoid", "elu", "softplus")}
    return Step("activation", activations[called]) if called in activations else Step("other", called)


def dense_stack(model: nn.Module) -> DenseStack | None:
    """Return the dense layers of a plain multi-layer perceptron, or None when the model is anything else.

    >>> dense_stack(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))).activation
    'relu'
    """
    steps = chain(model)
    if steps is None:
        return None
    working = [step for step in steps if step.kind != "shape"]
    dense, between = working[::2], working[1::2]
    if len(working) % 2 == 0 or any(step.layer is None for step in dense):
        return None
    names = {step.name for step in between}
    if any(step.kind != "activation" for step in between) or len(names) > 1:
        return None
    return DenseStack(tuple(step.layer for step in dense if step.layer is not None), names.pop() if names else None)
