"""ReLUs made smooth, so that gradients of gradients carry more than zeros and jumps."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, fx, nn


class SmoothReLU(nn.Module):
    """``log(1 + exp(βz))/β``, which tends to a ReLU as the sharpness ``β`` grows, and is one at infinity.

    The sharpness is a buffer, so a functional call can set it without touching the module.

    >>> SmoothReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    sharpness: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sharpness", torch.tensor(torch.inf))

    def forward(self, heights: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Apply the function elementwise."""
        is_sharp = self.sharpness.isinf()
        finite = torch.where(is_sharp, 1.0, self.sharpness)  # an infinite one would turn the unused branch into NaN
        return torch.where(is_sharp, heights.relu(), nn.functional.logsigmoid(-finite * heights) / -finite)


class GatedReLU(SmoothReLU):
    """A ReLU forwards whose derivative is taken to be ``sigmoid(βz)``: only backpropagation sees soft gates.

    >>> GatedReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, heights: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Apply the function elementwise."""
        smooth = super().forward(heights)
        return smooth + (heights.relu() - smooth).detach()


_RELU_CALLS = ("relu", "relu_")


def with_smooth_relus(model: nn.Module, stand_in: type[SmoothReLU] = SmoothReLU) -> nn.Module:
    """Return a copy of ``model`` whose ReLUs are smooth, whether they are modules or calls such as ``F.relu``.

    A model that ``torch.fx`` cannot trace keeps its calls; only its ReLU modules are replaced.
    """
    smooth = copy.deepcopy(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            if not name:
                return stand_in()
            parent, _, own = name.rpartition(".")
            setattr(smooth.get_submodule(parent), own, stand_in())
    try:
        traced = fx.GraphModule(smooth, _Tracer().trace(smooth))
    except Exception:  # torch.fx raises many kinds on control flow that depends on data
        return smooth
    return traced if _replace_calls(traced, stand_in) else smooth


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SmoothReLU) or super().is_leaf_module(m, module_qualified_name)


def _replace_calls(traced: fx.GraphModule, stand_in: type[SmoothReLU]) -> bool:
    calls = [
        node
        for node in traced.graph.nodes
        if node.op in ("call_function", "call_method")
        and (node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")) in _RELU_CALLS
    ]
    for number, node in enumerate(calls):
        name = f"smooth_relu_{number}"
        traced.add_submodule(name, stand_in())
        with traced.graph.inserting_before(node):
            node.replace_all_uses_with(traced.graph.call_module(name, tuple(node.all_input_nodes[:1])))
        traced.graph.erase_node(node)
    traced.recompile()
    return bool(calls)
