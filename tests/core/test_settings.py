from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings


@settings
class Inner:
    size: PositiveInt = 1


@settings
class Outer:
    steps: PositiveInt = 10
    rate: Annotated[float, Field(gt=0)] = 0.1
    keep: Literal["best", "all"] = "best"
    low: float = 0.0
    high: float = 1.0
    inner: Inner | None = None
    either: Literal["mean", "sum"] | Callable[[], int] | None = None

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ExhumeError("Outer needs low below high.")


def test_values_behave_like_frozen_dataclasses() -> None:
    made = Outer(steps=3, inner=Inner(size=2))
    assert repr(made) == "Outer(steps=3, rate=0.1, keep='best', low=0.0, high=1.0, inner=Inner(size=2), either=None)"
    assert replace(made, steps=4).steps == 4
    assert [one.name for one in fields(Outer)][:2] == ["steps", "rate"]
    assert asdict(made)["inner"] == {"size": 2}
    assert made == Outer(steps=3, inner=Inner(size=2))
    assert hash(made) == hash(Outer(steps=3, inner=Inner(size=2)))
    with pytest.raises(FrozenInstanceError):
        made.steps = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"steps": 0}, "Outer: steps should be greater than 0, not 0."),
        ({"steps": 2.5}, "Outer: steps should be a valid integer"),
        ({"rate": float("nan")}, "Outer: rate should be a finite number"),
        ({"either": "other"}, "Outer: either should be 'mean' or 'sum', not 'other'."),
        ({"keep": "worst"}, "Outer: keep should be 'best' or 'all', not 'worst'."),
        ({"stpes": 3}, "Outer has no setting 'stpes'."),
        ({"low": 2.0}, "Outer needs low below high."),
    ],
)
def test_values_that_do_not_fit_are_refused_in_one_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ExhumeError) as refused:
        Outer(**values)  # type: ignore[arg-type]
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_replacing_checks_again() -> None:
    with pytest.raises(ExhumeError, match="greater than 0"):
        replace(Outer(), rate=-1.0)
