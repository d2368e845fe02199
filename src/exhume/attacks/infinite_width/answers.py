"""The change of a network's outputs by training, as a function that can only be evaluated."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.models.tangent import compute_outputs, jacobian_vector_product, widen
from exhume.records import AttackerView

Inputs = Float[Tensor, "candidate value"]
Outputs = Float[Tensor, "candidate output"]
Answers = Callable[[Inputs], tuple[Outputs, Callable[[Outputs], Inputs]]]
"""Map inputs to the change of the network's outputs, and to its pullback: from a cotangent of outputs to inputs."""


def change_of_outputs(view: AttackerView) -> Answers:
    """Return ``f(x) − f0(x)`` for the network of a view with initial weights."""
    assert view.initial is not None
    initial, final, model = widen(view.initial), widen(view.final), view.module(view.final)
    change = {name: final[name] - initial[name] for name in final}

    def difference(inputs: Tensor) -> Tensor:
        shaped = inputs.reshape(len(inputs), *view.input_shape)
        if view.linearised:
            return jacobian_vector_product(model, initial, shaped, change)[1]
        return compute_outputs(model, final, shaped) - compute_outputs(model, initial, shaped)

    def answers(inputs: Inputs) -> tuple[Outputs, Callable[[Outputs], Inputs]]:
        with torch.enable_grad():
            inputs = inputs.detach().requires_grad_()
            outputs = difference(inputs)

        def pull(cotangent: Tensor) -> Tensor:
            return torch.autograd.grad(outputs, inputs, cotangent)[0]

        return outputs.detach(), pull

    return answers
