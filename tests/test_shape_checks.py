"""Checks of shapes during tests: wrong shapes are refused, and only calls of a kind already seen are not checked."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from exhume.evaluation.distances import squared_distances
from tests.shape_checks import CHECKED_CALLS, check_new_shapes


@check_new_shapes(typechecker=beartype)
def first_row(matrix: Float[Tensor, "row column"], *, transposed: bool = False) -> Float[Tensor, " column"]:
    return matrix[:, 0] if transposed else matrix[0]


def test_signatures_of_exhume_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        squared_distances(torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, 2))


def test_a_new_shape_is_checked_after_any_number_of_calls() -> None:
    for _ in range(10 * CHECKED_CALLS):
        first_row(torch.zeros(2, 3))
    with pytest.raises(TypeCheckError, match="parameters"):
        first_row(torch.zeros(3))
    with pytest.raises(TypeCheckError, match="return value"):
        first_row(torch.zeros(2, 3), transposed=True)


def test_a_function_defined_inside_another_is_checked() -> None:
    def outer() -> None:
        @check_new_shapes(typechecker=beartype)
        def inner(matrix: Float[Tensor, "row column"]) -> None:
            pass

        inner(torch.zeros(3))

    with pytest.raises(TypeCheckError):
        outer()
