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
    row_free, column_free = np.ones(table.shape[0], bool), np.ones(table.shape[1], bool)
    pairs: list[tuple[int, int]] = []
    wanted = min(table.shape)
    for flat in np.argsort(table, axis=None, kind="stable"):
        if len(pairs) == wanted:
            break
        row, column = divmod(int(flat), table.shape[1])
        if row_free[row] and column_free[column]:
            row_free[row] = column_free[column] = False
            pairs.append((row, column))
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


_MATCHINGS = {"greedy": _greedy, "optimal": linear_sum_assignment}
