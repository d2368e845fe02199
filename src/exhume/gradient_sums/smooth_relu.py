"""Smooth replacements for the ReLUs of a module, so that gradients of gradients are not zero almost everywhere."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, fx, nn

from exhume.gradient_sums.activations import softplus
from exhume.models.outputs import keep_output


class SmoothReLU(nn.Module):
    """``softplus(βz)/β``, which tends to a ReLU as the sharpness ``β`` grows, and is one at infinity.

    The sharpness is a buffer, so that a functional call can set it without a change of the module.

    >>> SmoothReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    sharpness: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sharpness", torch.tensor(torch.inf))

    def forward(self, pre_activations: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Apply the function elementwise."""
        is_exact = self.sharpness.isinf()
        finite = torch.where(is_exact, 1.0, self.sharpness)  # an infinite one would turn the unused branch into NaN
        return torch.where(is_exact, pre_activations.relu(), softplus(finite * pre_activations) / finite)


class GatedReLU(SmoothReLU):
    """A ReLU whose derivative is taken to be ``sigmoid(βz)``: only backpropagation sees smooth gates.

    >>> GatedReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, pre_activations: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Apply the function elementwise."""
        smooth = super().forward(pre_activations)
        return smooth + (pre_activations.relu() - smooth).detach()


_RELU_CALLS = ("relu", "relu_")


def with_smooth_relus(model: nn.Module, relu: type[SmoothReLU] = SmoothReLU) -> nn.Module:
    """Return a copy of ``model`` whose ReLUs are smooth, whether they are modules or calls such as ``F.relu``.

    In a model that ``torch.fx`` cannot trace only ReLU modules are replaced, and calls stay as they are.
    """
    smooth = copy.deepcopy(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            if not name:
                return relu()
            parent, _, own = name.rpartition(".")
            setattr(smooth.get_submodule(parent), own, relu())
    try:
        traced = fx.GraphModule(smooth, _Tracer().trace(smooth))
    except Exception:  # torch.fx raises many kinds on control flow that depends on data
        return smooth
    return keep_output(smooth, traced) if _replace_calls(traced, relu) else smooth


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SmoothReLU) or super().is_leaf_module(m, module_qualified_name)


def _replace_calls(traced: fx.GraphModule, relu: type[SmoothReLU]) -> bool:
    calls = [
        node
        for node in traced.graph.nodes
        if node.op in ("call_function", "call_method")
        and (node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")) in _RELU_CALLS
    ]
    for number, node in enumerate(calls):
        name = f"smooth_relu_{number}"
        traced.add_submodule(name, relu())
        with traced.graph.inserting_before(node):
            node.replace_all_uses_with(traced.graph.call_module(name, tuple(node.all_input_nodes[:1])))
        traced.graph.erase_node(node)
    traced.recompile()
    return bool(calls)
