"""The same mathematics in plain PyTorch, written in the obvious way: the baseline of the benchmarks."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap


def softplus_network(width: int, inputs: int, outputs: int = 1) -> nn.Sequential:
    """Return a network with the shapes of ``exhume.MLP(width, depth=2)`` and softplus in place of ReLU."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, width), nn.Softplus(beta=10.0),
        nn.Linear(width, width), nn.Softplus(beta=10.0),
        nn.Linear(width, outputs),
    )  # fmt: skip


def double_backpropagation(
    network: nn.Module,
    points: Sequence[dict[str, Tensor]],
    target: Sequence[Tensor],
    start: tuple[Tensor, Tensor],
    box: tuple[float, float],
    box_weight: float,
    learning_rate: float,
    *,
    sparing: bool = True,
) -> Callable[[int], Tensor]:
    """Return a function that takes steps of Adam on ``‖Δ − Σ α ∇f(x)‖²`` plus the soft box, by autograd alone.

    ``sparing`` computes the gradients of candidates only. Scripts usually call ``backward()`` on the loss, which
    computes the unused gradients of all weights too.
    """
    inputs, duals = (part.clone().requires_grad_() for part in start)
    optimiser = torch.optim.Adam([inputs, duals], lr=learning_rate)
    leaves = [{name: weight.clone().requires_grad_() for name, weight in point.items()} for point in points]

    def objective() -> Tensor:
        total = [torch.zeros_like(part) for part in target]
        for weights, dual in zip(leaves, duals, strict=True):
            weighted = (functional_call(network, weights, inputs) * dual).sum()
            gradients = torch.autograd.grad(weighted, list(weights.values()), create_graph=True)
            total = [one + other for one, other in zip(total, gradients, strict=True)]
        residual = sum((one - other).square().sum() for one, other in zip(total, target, strict=True))
        violation = inputs - inputs.clamp(*box)
        return residual + box_weight * violation.square().sum() / inputs.shape[1]

    def advance(steps: int) -> Tensor:
        value = torch.zeros(())
        for _ in range(steps):
            optimiser.zero_grad()
            value = objective()
            value.backward(inputs=[inputs, duals] if sparing else None)
            optimiser.step()
        return value.detach()

    return advance


def jacobian_contraction(network: nn.Module, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """Return the empirical tangent kernel of one output as in the tutorials of ``torch.func``."""

    def output(at: dict[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(network, at, one[None])[0]

    jacobians = vmap(jacrev(output), (None, 0))(weights, inputs)
    parts = [jacobian.flatten(2) for jacobian in jacobians.values()]
    return torch.stack([torch.einsum("naf,maf->nm", part, part) for part in parts]).sum(0)
