"""Settings from text: types and limits are those that the class declares."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import Field, PositiveInt

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings
from exhume.core.settings_from_text import parse_settings


@settings
class Checked:
    """Fields with limits."""

    steps: PositiveInt = 1
    lr: Annotated[float, Field(gt=0)] | None = None
    sizes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Plain:
    """A dataclass without checks of its own."""

    steps: int = 1


def test_the_result_builds_the_class() -> None:
    read = parse_settings(Checked, {"steps": "1e3", "lr": "1", "sizes": "[[1, 2], [3]]"})
    assert read == {"steps": 1000, "lr": 1.0, "sizes": ((1, 2), (3,))}
    assert Checked(**read).sizes == ((1, 2), (3,))
    assert parse_settings(Plain, {"steps": "20_000"}) == {"steps": 20_000}


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("steps", "0", "a whole number for steps greater than 0, not '0'"),
        ("lr", "-1", "greater than 0, not '-1'"),
        ("lr", "NaN", "a number or none for lr"),
        ("lr", "1e999", "a number or none for lr"),
        ("step", "1", "Checked has no setting 'step'; did you mean steps"),
    ],
)
def test_messages_state_the_valid_values(field: str, text: str, message: str) -> None:
    with pytest.raises(ExhumeError, match=message):
        parse_settings(Checked, {field: text})


def test_objects_are_given_by_name() -> None:
    @dataclass(frozen=True)
    class Holder:
        inner: Plain | None = None

    names = {Plain: "the name of a plain value"}
    assert parse_settings(Holder, {"inner": "one"}, objects={"one": Plain(1)}, type_names=names) == {"inner": Plain(1)}
    with pytest.raises(ExhumeError, match="the name of a plain value or none for inner, not 'two'"):
        parse_settings(Holder, {"inner": "two"}, type_names=names)
