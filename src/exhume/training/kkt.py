"""How far a trained network is from the stationary point that attacks on its final weights rely on.

With the training data known, the best multipliers solve a least-squares problem in the tangent kernel: for
``θ ≈ Jᵀl`` they solve ``K l = Jθ``. The part of the weights that they leave explains why an attack works or fails.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from exhume.models.tangent import jacobian_vector_product, kernel_blocks, split_weights, vector_jacobian_product
from exhume.records import Dataset, Victim
from exhume.training.losses import LOSSES, margin_directions
from exhume.training.prediction import predict

JITTER = 1e-12
"""Multiple of the mean diagonal added to the kernel, so that repeated examples do not make it singular."""
NOTABLE = 0.01
"""Fraction of the largest multiplier above which an example counts as carrying the weights."""


@dataclass(frozen=True, kw_only=True)
class KktReport:
    """The part of the final weights that gradients of the training data do not explain."""

    residual: float
    """``‖θ − Σ l_i ∇f(x_i)‖/‖θ‖`` with the best multipliers of any sign."""
    margin_residual: float | None
    """The same with multipliers ``λ ≥ 0`` of margins; None for regression."""
    layers: dict[str, float]
    """The residual of each parameter, relative to that parameter, with multipliers of any sign."""
    carriers: int
    """The number of training examples with a multiplier above :data:`NOTABLE` of the largest."""
    multipliers: Float[Tensor, "example output"]

    @property
    def sentence(self) -> str:
        """State what the residual means for an attack."""
        worst = max(self.layers, key=lambda name: self.layers[name])
        judgement = (
            "near a stationary point: its final weights carry its training data"
            if self.residual < 0.2
            else "not at a stationary point, which limits attacks on its final weights, except where edges meet"
        )
        return (
            f"The training data leave {self.residual:.1%} of the weights unexplained, most of {worst} "
            f"({self.layers[worst]:.1%}); {self.carriers} of {len(self.multipliers)} examples carry them. "
            f"The network is {judgement}."
        )


def kkt_report(victim: Victim, data: Dataset) -> KktReport:
    """Measure the distance of a victim from its stationary point, with the data it was trained on.

    Only the owner can do this: an attacker has no training data. Gates are taken as they are. Examples that came to
    rest on the edge of a unit are explained by one side only, so a true stationary point may leave 10 to 20 per cent.
    """
    final = {name: weight.double() if weight.is_floating_point() else weight for name, weight in victim.final.items()}
    view = victim.view()
    model = view.module(final)
    inputs = view.to_model(data.train.inputs.double())
    weights, _ = split_weights(model, final)
    size = sum(float(weight.square().sum()) for weight in weights.values())
    along = jacobian_vector_product(model, final, inputs, weights)[1]
    outputs = along.shape[1]
    kernel = kernel_blocks(model, final, inputs).reshape(along.numel(), along.numel())
    kernel = kernel + JITTER * kernel.diagonal().mean() * torch.eye(len(kernel), dtype=kernel.dtype)
    best = torch.linalg.solve(kernel, along.reshape(-1, 1)).reshape(-1, outputs)
    explained = vector_jacobian_product(model, final, inputs, best)
    left = {name: weight - explained[name] for name, weight in weights.items()}
    strengths = best.abs().sum(1)
    return KktReport(
        residual=(sum(float(part.square().sum()) for part in left.values()) / size) ** 0.5,
        margin_residual=_margin_residual(victim, data, kernel, along, size),
        layers={name: float(part.norm() / weights[name].norm().clamp(min=1e-300)) for name, part in left.items()},
        carriers=int((strengths > NOTABLE * strengths.max()).sum()),
        multipliers=best,
    )


def _margin_residual(victim: Victim, data: Dataset, kernel: Tensor, along: Tensor, size: float) -> float | None:
    if LOSSES[str(victim.training.get("loss", "mse"))].attained:
        return None
    examples, outputs = along.shape
    towards = margin_directions(predict(victim, data.train.inputs).double(), data.train.labels)
    blocks = kernel.reshape(examples, outputs, examples, outputs)
    gram = torch.einsum("ic,icjd,jd->ij", towards, blocks, towards)
    gram = gram + 1e-9 * gram.diagonal().mean() * torch.eye(examples, dtype=gram.dtype)
    # min λᵀGλ − 2λᵀb over λ ≥ 0 is a least-squares problem in the Cholesky factor of G.
    factor = torch.linalg.cholesky(gram)
    wanted = (towards * along).sum(1)
    target = torch.linalg.solve_triangular(factor, wanted[:, None], upper=False)[:, 0]
    multipliers = torch.from_numpy(nnls(factor.T.numpy(), target.numpy())[0].astype(np.float64))
    left = size - 2 * float(multipliers @ wanted) + float(multipliers @ gram @ multipliers)
    return math.sqrt(max(left, 0.0) / size)
