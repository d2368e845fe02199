"""Settings: frozen values whose fields are checked by their types when they are made.

A field states its own limits: ``steps: PositiveInt``, ``lr: Annotated[float, Field(gt=0)]``, ``keep: Literal["best",
"all"]``. Relations between fields belong in ``__post_init__``, which raises :class:`~exhume.core.errors.ExhumeError`.
"""

import dataclasses
import functools
import reprlib
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from exhume.core.errors import ExhumeError

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field, dataclasses.field))
def settings(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, keyword-only dataclass that refuses values its annotations do not allow.

    Raises:
        ExhumeError: from the constructor, with one sentence, when a value does not fit.
    """
    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", allow_inf_nan=False)
    made: Any = checked_dataclass(frozen=True, kw_only=True, config=config)(cls)
    construct = made.__init__

    @functools.wraps(construct)
    def checked(self: Any, *values: Any, **named: Any) -> None:
        try:
            construct(self, *values, **named)
        except ValidationError as error:
            raise ExhumeError(describe_problem(type(self).__name__, error)) from None

    made.__init__ = checked
    return made  # type: ignore[no-any-return]


def describe_problem(name: str, error: ValidationError) -> str:
    """Return the first problem of a validation as one sentence."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # no tags of unions
    if first["type"] == "unexpected_keyword_argument":
        return f"{name} has no setting {place!r}."
    if first["type"] == "missing":
        return f"{name} needs a value for {place}."
    message = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{name}: {place} should be {message}, not {reprlib.repr(first['input'])}."
