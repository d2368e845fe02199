"""The first-order expansion of any module around its weights."""

import copy

from jaxtyping import Float
from torch import Tensor, nn

from exhume.models.tangent import add_all, jacobian_vector_product


class Linearised(nn.Module):
    """``f(x; θ0) + ∂f(x; θ0)·(θ − θ0)``: a network that is linear in its weights, expanded around those of ``module``.

    ``start`` holds ``θ0``, which never changes; the parameters of ``module`` are ``θ`` and train as usual.

    >>> import torch
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
        start = dict(self.start.state_dict())
        change = {name: weight - start[name] for name, weight in self.module.named_parameters()}
        return add_all(jacobian_vector_product(self.start, start, inputs, change))
