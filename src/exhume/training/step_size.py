"""The largest stable learning rate of gradient descent."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.models.batch_norm import with_batch_statistics
from exhume.models.building import ScaledLinear
from exhume.models.tangent import jacobian_vector_product, vector_jacobian_product
from exhume.records import count_outputs
from exhume.training.losses import LOSSES, Loss
from exhume.training.settings import Training

POWER_STEPS = 30
"""Number of power iterations; the bound has a safety factor, so a few per cent of error do not matter."""


def sharpness(network: nn.Module, inputs: Float[Tensor, "example ..."], objective: Loss) -> float:
    """Return an upper bound of the curvature of the loss in the weights; descent is stable below ``2/curvature``.

    For a network that is nearly linear in its weights, this is the curvature of the loss in the outputs times the
    largest eigenvalue of the tangent kernel, divided by the number of examples. Power iteration finds the eigenvalue
    without forming the kernel.
    """
    network = with_batch_statistics(network)
    weights = {name: weight.detach() for name, weight in network.state_dict().items()}
    outputs = count_outputs(network, tuple(inputs.shape[1:]))
    duals = torch.randn(len(inputs), outputs, generator=torch.Generator().manual_seed(0)).to(inputs)
    eigenvalue = 0.0
    for _ in range(POWER_STEPS):
        size = torch.linalg.norm(duals).item()
        if size == 0.0 or not math.isfinite(size):
            break
        change = vector_jacobian_product(network, weights, inputs, duals / size)
        duals = jacobian_vector_product(network, weights, inputs, change)[1]
        eigenvalue = torch.linalg.norm(duals).item()
    return objective.curvature(outputs) * eigenvalue / len(inputs)


def fast_lr(network: nn.Module, inputs: Float[Tensor, "example ..."], settings: Training) -> float:
    """Return the learning rate of the fast schedule: close to the gradient flow, and stable if the kernel grows.

    Steps of ``0.3/sharpness`` follow the flow. Where weights start small or grow without limit, the sharpness grows
    with them, so there is an upper bound too, in proportion to how the loss and the layers scale gradients down.
    """
    if settings.optimiser != "sgd":
        return 1e-3
    objective = LOSSES[settings.loss]
    steepest = sharpness(network, inputs, objective) + settings.weight_decay
    scales = [layer.weight_scale**2 for layer in network.modules() if isinstance(layer, ScaledLinear)]
    bound = 0.1 / objective.curvature(count_outputs(network, tuple(inputs.shape[1:]))) if objective.attained else 0.01
    return min(0.3 / max(steepest, 1e-30), bound / max(scales, default=1.0))
