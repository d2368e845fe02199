"""One-to-one matchings of candidates and examples, from a table of distances."""

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from exhume.core.errors import ExhumeError


def match(distances: Float[Tensor, "candidate example"], how: str = "greedy") -> Int[Tensor, "pair 2"]:
    """Match each example with one candidate, or each candidate with one example where candidates are fewer.

    ``greedy`` takes the smallest distance, removes both, and repeats (Loo et al. 2023, section 4); ``optimal`` has the
    smallest sum. Candidates with a distance that is not finite are left out. Ties go to the lower index.

    Returns:
        Pairs of candidate and example, smallest distance first.

    >>> match(torch.tensor([[4.0, 1.0], [2.0, 0.0], [9.0, 9.0]])).tolist()
    [[1, 1], [0, 0]]
    """
    if how not in _MATCHINGS:
        raise ExhumeError(f"There is no matching {how!r}; choose from {', '.join(_MATCHINGS)}.")
    usable = distances.isfinite().all(1).nonzero()[:, 0].numpy()
    table = distances.double().numpy()[usable]
    rows, columns = _MATCHINGS[how](table)
    order = np.argsort(table[rows, columns], kind="stable")
    return torch.from_numpy(np.stack([usable[rows[order]], columns[order]], axis=1).astype(np.int64))


def _greedy(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Match pairs that are each other's nearest, remove them, and repeat: the same pairs as one after another.

    The smallest distance of all is such a pair, so every round finds one, and most rounds find many.
    """
    left = np.array(table.T, order="C")  # the nearest candidate of an example is then found in one piece of memory
    examples = np.arange(len(left))
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    wanted = min(table.shape)
    while wanted:
        nearest = left.argmin(1)
        is_mutual = left[:, nearest].argmin(0) == np.arange(len(left))
        pairs.append(np.stack([nearest[is_mutual], examples[is_mutual]], axis=1))
        wanted -= int(is_mutual.sum())
        left, examples = left[~is_mutual], examples[~is_mutual]
        left[:, nearest[is_mutual]] = np.inf
    both = np.concatenate(pairs)
    return both[:, 0], both[:, 1]


_MATCHINGS = {"greedy": _greedy, "optimal": linear_sum_assignment}
