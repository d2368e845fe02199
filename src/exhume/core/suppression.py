"""Greedy non-maximum suppression: keep the best item, drop the items near it, and repeat with the rest."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def suppress_neighbours(
    order: Int[Tensor, " ranked"], are_near: Callable[[int], Bool[Tensor, " item"]]
) -> Iterator[tuple[int, Bool[Tensor, " item"]]]:
    """Yield each kept item with its group: itself and the items it suppresses. Groups are disjoint.

    Args:
        order: the items to consider, best first; other items belong to no group.
        are_near: returns which of all items are near a given one.

    >>> numbers = torch.tensor([1.0, 1.2, 5.0])
    >>> near = lambda item: (numbers - numbers[item]).abs() < 1.0
    >>> [(kept, group.tolist()) for kept, group in suppress_neighbours(torch.tensor([1, 0, 2]), near)]
    [(1, [True, True, False]), (2, [False, False, True])]
    """
    remaining: Tensor | None = None
    for item in order.tolist():
        if remaining is not None and not bool(remaining[item]):
            continue
        near = are_near(item).cpu()
        if remaining is None:
            remaining = torch.zeros_like(near)
            remaining[order.cpu()] = True
        group = remaining & near
        group[item] = True
        remaining &= ~group
        yield item, group
