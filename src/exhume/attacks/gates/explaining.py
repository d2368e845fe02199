"""Inputs that together explain the evidence, as starting points for the search of rows.

The evidence is a sum over all training inputs, so the inputs are best guessed all at once: a short weight-difference
attack (:class:`~exhume.attacks.weight_difference.WeightDifference`) leaves inputs near enough to the true ones to tell
which units they left off. Rows that are known leave a smaller problem of the same kind: fewer inputs, in the subspace
that only they span, explain what the known effects leave. So every answer makes the next one easier.

Where the layer reads features, the dense layers from there on are a network of their own, whose inputs are the
features.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.gates.rounds import Explain
from exhume.attacks.gates.rules import SearchRules
from exhume.attacks.weight_difference import WeightDifference
from exhume.clues.subspace import InputSubspace
from exhume.clues.tail import tail_view
from exhume.core.errors import Refusal
from exhume.core.progress import Tick
from exhume.core.run_context import RunContext
from exhume.gradient_sums.sums import stack_of
from exhume.inversion.through_trunk import trunk_of
from exhume.records import AttackerView

EXPLAINING = WeightDifference(oversampling=2.0, features="midpoint", learning_rate=0.1)
"""The attack that explains the evidence; the rules of the search say for how many steps."""


def explanations(
    view: AttackerView,
    subspace: InputSubspace,
    columns: Float[Tensor, "value rank"],
    warm_start: Attack | None,
    context: RunContext,
    rules: SearchRules,
) -> Explain | None:
    """Return the source of inputs that explain the evidence; None where no attack applies.

    Args:
        view: what the attacker holds.
        subspace: the subspace of the layer whose rows are searched; what this layer reads is returned.
        columns: the directions that inputs are returned in coordinates of.
        warm_start: an attack to ask first.
        context: the source of chance, and the deadline.
        rules: how many steps to take.
    """
    layer = subspace.layer
    own = view if layer.reads_input else tail_view(view, layer)
    can_repeat = own is not None and _applies(own)
    can_continue = own is not None and can_repeat and stack_of(own) is not None and not layer.evidence.others

    is_first = True

    def explain(asked: int, rows: Tensor, tick: Tick) -> Tensor:
        nonlocal is_first
        quiet = replace(context, checkpoint=None, progress=lambda *_, **__: tick())
        if warm_start is not None and (is_first or not can_repeat):
            inputs = view.to_model(warm_start.recover(view, quiet).inputs.to(view.device)).double()
            read = inputs.flatten(1) if layer.reads_input else trunk_of(view, layer.name, layer.evidence.after)(inputs)
        else:
            assert own is not None, "without a view of the layer and a warm start there is nothing to ask"
            attack = replace(EXPLAINING, steps=rules.explaining_steps * rules.growth**asked)
            if can_continue:
                read = attack.explain_rest(own, subspace.without(rows), quiet).double()
            else:
                read = own.to_model(attack.recover(own, quiet).inputs.to(view.device)).double().flatten(1)
        is_first = False
        if layer.has_bias:
            read = torch.cat([read, torch.ones_like(read[:, :1])], dim=1)
        return read @ columns

    return explain if warm_start is not None or can_repeat else None


def _applies(view: AttackerView) -> bool:
    """Return whether the weight-difference attack applies."""
    try:
        EXPLAINING.check(view)
    except Refusal:
        return False
    return True
