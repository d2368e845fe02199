"""Which parameter of a model has which number in the state of its optimiser.

PyTorch's optimisers number parameters in the order in which they were given: all parameters of the model or only the
trained ones, in one group or in several. A state has the shapes of its parameters, which decides between these.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

import torch
from torch import nn

from exhume.core.errors import WeightsError

Shapes = Mapping[int, torch.Size]
MOST_PATHS = 100_000
"""Number of partial assignments after which a search gives up; a model and its own optimiser need a few hundred."""


def match_parameters(model: nn.Module, groups: Sequence[Sequence[int]], shapes: Shapes) -> dict[int, str]:
    """Return the name of each numbered parameter that has a state.

    Args:
        model: the model; parameters that are shared between layers count once, as they do for an optimiser.
        groups: the numbers of each parameter group.
        shapes: the shape of the state of each number; those without a state are absent.

    Raises:
        WeightsError: when the numbers fit the model in no way, or in several.
    """
    every = dict(model.named_parameters())
    trained = {name: weight for name, weight in every.items() if weight.requires_grad}
    numbers = list(chain.from_iterable(groups))
    matrices = sorted(every, key=lambda name: every[name].ndim < 2)  # stable: matrices first, then biases and norms
    for names in (list(every), list(trained), matrices, _biases_last(every)):
        if len(names) == len(numbers) and _fit(names, numbers, every, shapes):
            return {number: name for number, name in zip(numbers, names, strict=True) if number in shapes}
    found = list(islice(_assignments(list(every.items()), groups, shapes), 2))
    if not found:
        raise WeightsError(
            "The optimiser's state does not belong to this model: its shapes are not those of the weights."
        )
    if len(found) > 1:
        raise WeightsError(
            "The optimiser's state fits the parameters of this model in several ways; freeze in the model what was "
            "frozen in training, or give the state by parameter name."
        )
    return found[0]


def _biases_last(every: Mapping[str, nn.Parameter]) -> list[str]:
    """Return names as the Hugging Face Trainer groups them: biases and normalisation layers in a second group."""
    return sorted(every, key=lambda name: name.endswith("bias") or "norm" in name.lower())


def _fit(names: Sequence[str], numbers: Sequence[int], every: Mapping[str, nn.Parameter], shapes: Shapes) -> bool:
    pairs = zip(names, numbers, strict=True)
    return all(shapes.get(number, every[name].shape) == every[name].shape for name, number in pairs)


def _assignments(
    parameters: Sequence[tuple[str, nn.Parameter]], groups: Sequence[Sequence[int]], shapes: Shapes
) -> Iterator[dict[int, str]]:
    """Yield every assignment in which each group lists parameters in the order of the model, some left out."""
    paths: list[tuple[int, tuple[int, ...], dict[int, str]]] = [(0, (0,) * len(groups), {})]
    seen: set[tuple[int, tuple[int, ...], tuple[tuple[int, str], ...]]] = set()
    for _ in range(MOST_PATHS):
        if not paths:
            return
        at, heads, named = paths.pop()
        left = sum(len(group) for group in groups) - sum(heads)
        key = (at, heads, tuple(sorted(named.items())))
        if left > len(parameters) - at or key in seen:
            continue
        seen.add(key)
        if left == 0:
            yield named
            continue
        name, weight = parameters[at]
        paths.append((at + 1, heads, named))
        for place, (group, head) in enumerate(zip(groups, heads, strict=True)):
            if head == len(group) or shapes.get(group[head], weight.shape) != weight.shape:
                continue
            advanced = (*heads[:place], head + 1, *heads[place + 1 :])
            paths.append((at + 1, advanced, named | ({group[head]: name} if group[head] in shapes else {})))
    raise WeightsError("The optimiser's state has too many groups to be matched with this model.")
