"""Tasks: which classes form which label."""

import pytest
import torch

from exhume.core.errors import DataError
from exhume.data.cifar import CIFAR_10
from exhume.data.idx import CLOTHES, DIGITS
from exhume.data.tasks import Classes, choose_task


def test_odd_comes_before_even() -> None:
    task = choose_task("odd-even", DIGITS)
    assert task.classes == ("odd", "even")
    assert task.relabel(torch.tensor([1, 2, 9, 0])).tolist() == [0, 1, 0, 1]


def test_trucks_are_vehicles_and_frogs_are_animals() -> None:
    task = choose_task("animal-vehicle", CIFAR_10)
    expected = {name: name in ("airplane", "automobile", "ship", "truck") for name in CIFAR_10}
    assert dict(zip(CIFAR_10, task.label_of.bool().tolist(), strict=True)) == expected


@pytest.mark.parametrize("everything", [None, "all"])
def test_all_classes_keep_their_labels(everything: str | None) -> None:
    task = choose_task(everything, CIFAR_10)
    assert task.classes == CIFAR_10
    assert task.label_of.tolist() == list(range(10))


@pytest.mark.parametrize(
    "spelling",
    [
        ("dog", "cat"),
        [5, 3],
        "dog,cat",
        " 5, 3",
        {"dog": ["dog"], "cat": [3]},
        "dog=dog; cat=cat",
    ],
)
def test_one_class_against_another_has_many_spellings(spelling: Classes) -> None:
    task = choose_task(spelling, CIFAR_10)
    assert task.classes == ("dog", "cat")
    assert task.label_of.tolist() == [-1, -1, -1, 1, -1, 0, -1, -1, -1, -1]


def test_groups_can_be_named() -> None:
    task = choose_task("pet=cat,dog; farm=horse", CIFAR_10)
    assert task.classes == ("pet", "farm")
    assert task.label_of[[3, 5, 7, 0]].tolist() == [0, 0, 1, -1]
    assert torch.equal(task.label_of, choose_task({"pet": ["cat", "dog"], "farm": ["horse"]}, CIFAR_10).label_of)


def test_a_number_is_read_as_a_name_before_an_index() -> None:
    assert choose_task((7, 3), ("3", "5", "7")).label_of.tolist() == [1, -1, 0]
    assert choose_task((0, 1), ("3", "5", "7")).classes == ("3", "5")


@pytest.mark.parametrize(
    ("classes", "known", "message"),
    [
        ("odd-even", CLOTHES, "needs the classes 0, 1"),
        ("animal-vehicle", DIGITS, "needs the classes airplane"),
        ("cat-dog", CIFAR_10, "no task 'cat-dog'"),
        (("cat", "unicorn"), CIFAR_10, "no class 'unicorn'; its classes are airplane"),
        ((3, 10), CIFAR_10, "no class 10"),
        ((3, -1), CIFAR_10, "no class -1"),
        (("cat", 3), CIFAR_10, "one class twice"),
        (("cat",), CIFAR_10, "at least two classes"),
        ((), CIFAR_10, "at least two classes"),
        ({"a": ["cat", "dog"], "b": ["dog"]}, CIFAR_10, "'dog' occurs in the task twice"),
        ({"a": ["cat"], "b": []}, CIFAR_10, "group 'b' must list"),
        ({"a": ["cat"], "b": "dog"}, CIFAR_10, "group 'b' must list"),
        ("a=cat;a=dog", CIFAR_10, "names a group twice"),
        ("a=cat", CIFAR_10, "at least two classes"),
        ("a=;b=cat", CIFAR_10, "group 'a' must list"),
    ],
)
def test_bad_tasks_are_refused_with_the_reason(classes: Classes, known: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose_task(classes, known)
