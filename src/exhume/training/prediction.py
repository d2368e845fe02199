"""What a trained network says."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.models.tangent import compute_outputs, jacobian_vector_product
from exhume.records import Split, Victim

CHUNK = 4096


@torch.no_grad()
def predict(victim: Victim, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example output"]:
    """Return the outputs of a victim for inputs in pixel units."""
    view = victim.view()
    model = view.module(victim.final)
    weight = next(iter(victim.final.values()))
    taken = view.to_model(inputs.to(weight))
    if victim.linearised:
        change = {name: victim.final[name] - victim.initial[name] for name in victim.final}
        pushed = [jacobian_vector_product(model, victim.initial, some, change) for some in torch.split(taken, CHUNK)]
        return torch.cat([at_start + moved for at_start, moved in pushed])
    return torch.cat([compute_outputs(model, victim.final, some) for some in torch.split(taken, CHUNK)])


def classify(outputs: Float[Tensor, "example output"]) -> Int[Tensor, " example"]:
    """Return the class of each row: by sign for one output, else the largest.

    >>> classify(torch.tensor([[-0.5], [2.0]]))
    tensor([0, 1])
    """
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def accuracy(victim: Victim, split: Split) -> float:
    """Return the fraction of a split that a victim classifies as labelled."""
    return (classify(predict(victim, split.inputs)) == split.labels).double().mean().item()
