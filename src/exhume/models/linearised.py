"""The first-order expansion of any module around its weights."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Linearised(nn.Module):
    """``f(x; θ0) + ∂f(x; θ0)·(θ − θ0)``: a network that is linear in its weights, expanded around those of ``module``.

    ``start`` holds ``θ0``, which never changes; the parameters of ``module`` are ``θ`` and train as usual.

    >>> lazy = Linearised(nn.Linear(2, 1))
    >>> torch.equal(lazy(torch.ones(3, 2)), lazy.module(torch.ones(3, 2)))
    True
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.start = copy.deepcopy(module).requires_grad_(False)

    def forward(self, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
        """Return the expansion at ``inputs``."""
        start = {name: weight.detach() for name, weight in self.start.named_parameters()}
        change = {name: weight - start[name] for name, weight in self.module.named_parameters()}

        def outputs(weights: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(self.start, weights, (inputs,))  # type: ignore[no-any-return]

        pushed: tuple[Tensor, ...] = torch.func.jvp(outputs, (start,), (change,))
        return pushed[0] + pushed[1]
