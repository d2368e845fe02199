"""Read a module's structure without running it: whether it is a stack of dense layers, and what follows a layer.

Modules are traced with ``torch.fx``, so a ``class Net(nn.Module)`` with ``F.relu(self.fc1(x.flatten(1)))`` is
understood as well as an ``nn.Sequential``. A module that is not understood for certain is never called a dense stack.
"""

import copy
import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from torch import Tensor, fx, nn
from torch.nn.modules.dropout import _DropoutNd

from exhume.models.activations import MODULE_OF_FUNCTION
from exhume.models.building import ScaledLinear

# These only move values around, or do nothing in evaluation mode.
_SHAPE_MODULES = (nn.Flatten, nn.Identity, _DropoutNd)
_SHAPE_CALLS = {"flatten", "view", "reshape", "squeeze", "contiguous", "float", "to", "dropout"}
_SIZE_CALLS = {"size", "getattr", "getitem"}


@dataclass(frozen=True)
class DenseLayer:
    """One dense layer of a stack: the names of its parameters, the scale of its weight on use, and its sizes."""

    weight: str
    bias: str | None
    weight_scale: float = 1.0
    inputs: int = 0
    units: int = 0


@dataclass(frozen=True)
class DenseStack:
    """Dense layers with one elementwise activation after each but the last.

    ``activation`` is the lower-case class name of the activation module (``relu``, ``leakyrelu``), ``identity`` where
    layers follow each other directly, and None for a single layer. ``apply`` is the activation with its settings.
    """

    layers: tuple[DenseLayer, ...]
    activation: str | None
    apply: Callable[[Tensor], Tensor] = field(default=nn.Identity(), compare=False)

    @property
    def input_size(self) -> int:
        """The number of values in one flat input."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return self.layers[-1].units


@dataclass(frozen=True)
class Step:
    """One step of a network; ``kind`` is ``dense``, ``activation``, ``shape`` or ``other``."""

    kind: str
    name: str
    layer: DenseLayer | None = None
    module: nn.Module | None = None


class _Tracer(fx.Tracer):
    """Trace a module, but not the inside of leaves or of submodules without any of the names of interest."""

    def __init__(self, interesting: Collection[str] | None) -> None:
        super().__init__()
        self.interesting = interesting

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, ScaledLinear) or super().is_leaf_module(m, module_qualified_name):
            return True
        inside = f"{module_qualified_name}."
        return self.interesting is not None and not any(name.startswith(inside) for name in self.interesting)


def _trace(model: nn.Module, interesting: Collection[str] | None = None) -> fx.Graph | None:
    try:
        return _Tracer(interesting).trace(model)
    except Exception:  # torch.fx raises many kinds on control flow that depends on data
        return None


def read_chain(model: nn.Module) -> list[Step] | None:
    """Return the steps from input to output if each feeds only the next; None for branching or untraceable models."""
    if isinstance(model, nn.Linear):  # a tracer looks inside its root, and here the root is the layer
        return [_read_module("", model, _parameter_names(model))]
    graph = _trace(model)
    if graph is None:
        return None
    steps: list[Step] = []
    sizes: set[fx.Node] = set()
    previous: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if previous is not None:
                return None
            previous = node
            continue
        if node.op == "output":
            return steps if node.args[0] is previous else None
        if _called(node) in _SIZE_CALLS:  # x.size(0), x.shape[0]: arithmetic about the input beside the chain
            sizes.add(node)
            continue
        if {other for other in node.all_input_nodes if other not in sizes} != {previous}:
            return None
        steps.append(_read_node(node, model))
        previous = node
    return None


def _parameter_names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


def _called(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _read_node(node: fx.Node, model: nn.Module) -> Step:
    if node.op == "call_module":
        return _read_module(str(node.target), model.get_submodule(str(node.target)), _parameter_names(model))
    called = _called(node)
    if called in _SHAPE_CALLS:
        return Step("shape", called)
    if called in MODULE_OF_FUNCTION:
        try:  # the arguments after the input are in the order of the module's
            return _activation_step(MODULE_OF_FUNCTION[called](*node.args[1:], **node.kwargs))
        except TypeError:
            return Step("other", called)
    return Step("other", called)


def _read_module(name: str, module: nn.Module, parameters: set[str]) -> Step:
    if isinstance(module, nn.Linear) and type(module) in (nn.Linear, ScaledLinear):
        prefix = f"{name}." if name else ""
        weight, bias = f"{prefix}weight", None if module.bias is None else f"{prefix}bias"
        if {weight, bias} - {None} <= parameters:  # a re-parameterised layer (weight norm, pruning) has other names
            scale = float(getattr(module, "weight_scale", 1.0))
            return Step("dense", name, DenseLayer(weight, bias, scale, module.in_features, module.out_features))
        return Step("other", name)
    if isinstance(module, _SHAPE_MODULES):
        return Step("shape", name)
    if type(module) in MODULE_OF_FUNCTION.values():
        return _activation_step(copy.deepcopy(module))
    return Step("other", name)


def _activation_step(module: nn.Module) -> Step:
    if hasattr(module, "inplace"):
        module.inplace = False  # type: ignore[assignment] # the same values, and callers keep their input
    return Step("activation", type(module).__name__.lower(), module=module)


def dense_stack(model: nn.Module) -> DenseStack | None:
    """Return the dense layers of a plain multi-layer perceptron, or None when the model is anything else.

    >>> dense_stack(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))).activation
    'relu'
    """
    steps = read_chain(model)
    if steps is None or any(step.kind == "other" for step in steps):
        return None
    working = [step for step in steps if step.kind != "shape"]
    layers = tuple(step.layer for step in working if step.layer is not None)
    activations = [step.module for step in working if step.module is not None]
    if not layers or not _are_distinct_and_fit(layers, model):
        return None
    pattern = [step.kind for step in working]
    if pattern == ["dense"] * len(layers):
        return DenseStack(layers, "identity" if len(layers) > 1 else None)
    alternating = ["dense", "activation"] * (len(layers) - 1) + ["dense"]
    if pattern != alternating or len({repr(activation) for activation in activations}) > 1:
        return None
    return DenseStack(layers, type(activations[0]).__name__.lower(), activations[0])


def _are_distinct_and_fit(layers: tuple[DenseLayer, ...], model: nn.Module) -> bool:
    """Return whether each layer takes the whole output of the previous one, and no two layers share weights."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
    distinct = len({id(parameters[name]) for name in names}) == len(names)
    return distinct and all(left.units == right.inputs for left, right in itertools.pairwise(layers))


def first_trained(model: nn.Module, changed: Collection[str]) -> tuple[Step, Step | None] | None:
    """Return the first step that training changed, and the only step that its output feeds.

    The part before it (a frozen feature extractor, for example) and the part after it may be of any structure.

    Args:
        model: the network.
        changed: the names of the parameters that training changed.

    Returns:
        The step and its only successor (None where the output branches or ends); None for an untraceable model or one
        in which no module holds a changed parameter.
    """
    return next(iter(trained_steps(model, changed)), None)


def trained_steps(model: nn.Module, changed: Collection[str]) -> list[tuple[Step, Step | None]]:
    """Return every step that training changed, in the order of their use, each with the only step that it feeds.

    A module that is used twice is there twice. The list is empty for an untraceable model.
    """
    if isinstance(model, nn.Linear):
        return [(_read_module("", model, _parameter_names(model)), None)]
    graph = _trace(model, changed)
    found: list[tuple[Step, Step | None]] = []
    for node in () if graph is None else graph.nodes:
        if node.op == "get_attr" and str(node.target) in changed:
            found.append((Step("other", str(node.target)), None))
        if node.op == "call_module" and any(name.startswith(f"{node.target}.") for name in changed):
            found.append((_read_node(node, model), _only_successor(node, model)))
    return found


def part_above(model: nn.Module, layer: str) -> nn.Module | None:
    """Return a layer and everything above it as a module that takes what the layer reads, with the same names.

    None for an untraceable model, a layer that is used more than once, and steps above it that read anything else.
    """
    graph = _trace(model)
    uses = [] if graph is None else [node for node in graph.nodes if node.op == "call_module" and node.target == layer]
    if graph is None or len(uses) != 1 or len(uses[0].all_input_nodes) != 1:
        return None
    above = fx.Graph()
    copies = {uses[0].all_input_nodes[0]: above.placeholder("features")}
    nodes = list(graph.nodes)
    for node in nodes[nodes.index(uses[0]) :]:
        if not copies.keys() >= set(node.all_input_nodes):
            return None
        copies[node] = above.node_copy(node, copies.__getitem__)
    return fx.GraphModule(model, above)


def _only_successor(node: fx.Node, model: nn.Module) -> Step | None:
    """Return the only step that takes the output of ``node``, skipping steps that only move values around."""
    while True:
        users = [user for user in node.users if _called(user) not in _SIZE_CALLS]
        if len(users) != 1 or users[0].op == "output":
            return None
        following = _read_node(users[0], model)
        if following.kind != "shape":
            return following
        node = users[0]
