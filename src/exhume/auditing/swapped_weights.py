"""Notice initial and final weights that were given in the wrong order."""

from dataclasses import replace

import torch
from torch import nn

from exhume.evaluation.network import UNLABELLED
from exhume.records import AttackerView, Dataset, Weights
from exhume.training.prediction import accuracy

BETTER = 0.2
"""Accuracy on the training data by which the initial weights beat the final ones where they are swapped."""
ADVICE = "They may be swapped; check --initial and --final."


def describe_swap(view: AttackerView, data: Dataset | None) -> str | None:
    """Return why the initial and the final weights look swapped; None where they do not."""
    if view.initial is None:
        return None
    counters = [name for name in view.final if name.endswith("num_batches_tracked")]
    if any(int(view.initial[name]) > int(view.final[name]) for name in counters):
        return f"Batch normalisation has seen more batches in the initial weights than in the final ones. {ADVICE}"
    if data is not None and data.classes != UNLABELLED and len(data.train) and not view.linearised:
        before, after = (accuracy(one, data.train) for one in (replace(view, final=view.initial), view))
        if before >= after + BETTER:
            return (
                f"The initial weights classify {before:.0%} of the training data as labelled, the final ones "
                f"{after:.0%}. {ADVICE}"
            )
    if _is_untrained(view.model, view.final) and not _is_untrained(view.model, view.initial):
        return f"The final weights look like those of a new PyTorch module, and the initial ones do not. {ADVICE}"
    return None


def _is_untrained(model: nn.Module, weights: Weights) -> bool:
    """Return whether all dense and convolutional weights lie within the range of PyTorch's default initialisation."""
    layers = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.Linear | nn.Conv2d)]
    if not layers:
        return False
    for name, _ in layers:
        weight = weights[f"{name}.weight" if name else "weight"]
        largest = float(weight.abs().max()) * (weight[0].numel() ** 0.5)
        if not 0.9 <= largest <= 1 + 4 * torch.finfo(torch.float32).eps:  # uniform up to 1/√inputs
            return False
    return True
