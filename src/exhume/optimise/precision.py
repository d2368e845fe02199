"""Precision of matrix products on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """Allow or forbid, inside the context, that a GPU rounds the factors of float32 matrix products to TF32.

    >>> before = torch.backends.cuda.matmul.allow_tf32
    >>> with tf32_products(True):
    ...     torch.backends.cuda.matmul.allow_tf32
    True
    >>> torch.backends.cuda.matmul.allow_tf32 == before
    True
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
