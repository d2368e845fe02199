"""Distillation by attack: reconstruct fewer images than a network was trained on."""

from dataclasses import replace

import torch

from exhume.attacks.weight_difference import WeightDifference
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.distillation.distillation import Distillation, make_split
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP
from exhume.models.tangent import kernel_blocks
from exhume.records import Dataset, Split
from exhume.training.trainer import train

WIDE_NETWORK = MLP(width=4096, depth=2)
PLAIN_SQUARES = WeightDifference(balance=0.0, steps=2000)


@settings
class RKIPFinite(Distillation):
    """Reconstruct fewer images than a linearised network was trained on, labelled ``K_RR α`` (Loo et al. 2023, Fig. 6).

    With too few candidates, the weight-difference attack cannot return the training set. It returns the images that
    represent it best in the tangent kernel of this network. Labels ``K_RR α`` give them the duals that it found.
    """

    model: Architecture = WIDE_NETWORK
    attack: WeightDifference = PLAIN_SQUARES
    """Settings of the search; its number of candidates is set to :attr:`size`, its features to the initial weights."""

    def distil(self, data: Dataset, context: RunContext, device: torch.device) -> Split:
        """Train a network, attack it, and label what the attack returns."""
        seed = int(torch.randint(2**31, (1,), generator=context.generator))
        victim = train(data, model=self.model, linearised=True, seed=seed, device=device, progress=context.report)
        attack = replace(self.attack, candidates=self.size, features="initial")
        view = victim.view()
        found = attack.run(view, seed=seed, device=device, progress=context.report, checkpoint=context.checkpoint)
        inputs = view.to_model(found.inputs)
        assert found.duals is not None
        kernel = kernel_blocks(view.module(victim.initial), victim.initial, inputs).double()
        targets = torch.einsum("icjd,jd->ic", kernel, found.duals.double())
        return make_split(data, inputs.flatten(1), targets, soft=True)
