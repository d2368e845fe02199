"""What a trained network says."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume.models.tangent import compute_outputs, jacobian_vector_product
from exhume.records import AttackerView, Split, Victim

CHUNK = 4096


@torch.no_grad()
def predict(network: Victim | AttackerView, inputs: Float[Tensor, "example ..."]) -> Float[Tensor, "example output"]:
    """Return the outputs of a trained network for inputs in pixel units."""
    view = network.view() if isinstance(network, Victim) else network
    model = view.module(view.final)
    like = next(weight for weight in view.final.values() if weight.is_floating_point())
    batches = torch.split(view.to_model(inputs.to(like)), CHUNK)
    if view.linearised and view.initial is not None:
        change = {name: view.final[name] - start for name, start in view.initial.items()}
        pushed = [jacobian_vector_product(model, view.initial, batch, change) for batch in batches]
        return torch.cat([at_start + moved for at_start, moved in pushed])
    return torch.cat([compute_outputs(model, view.final, batch) for batch in batches])


def classify(outputs: Float[Tensor, "example output"]) -> Int[Tensor, " example"]:
    """Return the class of each row: by sign for one output, else the largest.

    >>> classify(torch.tensor([[-0.5], [2.0]]))
    tensor([0, 1])
    """
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def accuracy(network: Victim | AttackerView, split: Split) -> float:
    """Return the fraction of a split that a network classifies as labelled; NaN for an empty split."""
    if len(split) == 0:  # not every network takes an empty batch
        return float("nan")
    return (classify(predict(network, split.inputs)).cpu() == split.labels.cpu()).double().mean().item()
