"""Distillation by attacking a network: what its weights say in fewer images than it was trained on."""

from dataclasses import dataclass, replace

import torch

from exhume.attacks.weight_difference import WeightDifference
from exhume.core.run_context import RunContext
from exhume.distillation.distillation import Distillation, split_of
from exhume.models.architecture import Architecture
from exhume.models.mlp import MLP
from exhume.models.tangent import kernel_blocks
from exhume.records import Dataset, Split
from exhume.training.trainer import train

WIDE = MLP(width=4096, depth=2)
PLAIN_SQUARES = WeightDifference(balance=0.0, steps=2000)


@dataclass(frozen=True, kw_only=True)
class RKIPFinite(Distillation):
    """Reconstruct fewer images than a linearised network was trained on, labelled ``K_RR α`` (Loo et al. 2023, Fig. 6).

    The weight-difference attack with too few candidates cannot return the training set, so it returns what stands for
    it best in the tangent kernel of that one network. The labels that make the duals right are ``K_RR α``.
    """

    model: Architecture = WIDE
    attack: WeightDifference = PLAIN_SQUARES
    """How to search; its candidates are set to :attr:`size`, its features to the initial weights."""

    def distilled(self, data: Dataset, context: RunContext, device: torch.device) -> Split:
        """Train, attack, and label what the attack returns."""
        seed = int(torch.randint(2**31, (1,), generator=context.generator))
        victim = train(data, model=self.model, linearised=True, seed=seed, device=device, progress=context.report)
        attack = replace(self.attack, candidates=self.size, features="initial")
        view = victim.view()
        found = attack.run(view, seed=seed, device=device, progress=context.report, checkpoint=context.checkpoint)
        inputs = view.to_model(found.inputs)
        assert found.duals is not None
        kernel = kernel_blocks(view.module(victim.initial), victim.initial, inputs).double()
        targets = torch.einsum("icjd,jd->ic", kernel, found.duals.double())
        return split_of(data, inputs.flatten(1), targets, soft=True)
