"""Labels: the order of classes, and the index of each label."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.labels import encode_labels, sort_classes


def test_classes_are_sorted_by_value_if_all_are_finite_numbers_and_else_alphabetically() -> None:
    assert sort_classes(["10", "9", "-1.5"]) == ("-1.5", "9", "10")
    assert sort_classes(["nan", "b", "10"]) == ("10", "b", "nan")
    assert sort_classes(["nan", "2", "10"]) == ("10", "2", "nan")


@given(st.lists(st.text(max_size=3), min_size=1, max_size=10))
def test_labels_are_recovered_from_their_indices(labels: list[str]) -> None:
    classes = sort_classes(labels)
    assert [classes[index] for index in encode_labels(labels, classes, "y")] == labels


def test_an_unknown_label_is_named() -> None:
    with pytest.raises(DataError, match=r"y_test .*'c'"):
        encode_labels(["a", "c"], ("a", "b"), "y_test")
