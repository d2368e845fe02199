"""Import this module before exhume to run from source where only the numerical packages are installed.

Benchmarks neither download nor write web pages, and their settings are valid. So stand-ins suffice for the packages
that download (pooch), write pages (jinja2) and check settings (pydantic).
"""

import dataclasses
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


def unchecked_pydantic() -> dict[str, ModuleType]:
    """Return modules that make plain dataclasses where pydantic makes checked ones."""

    def dataclass(*, frozen: bool, kw_only: bool, config: Any) -> Any:
        return dataclasses.dataclass(frozen=frozen, kw_only=kw_only)

    class ValidationError(Exception):
        """Never raised, since nothing is checked."""

    class InstanceOf:
        """An annotation that stands for its argument."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return kind

    package = ModuleType("pydantic")
    package.Field = lambda **limits: None  # type: ignore[attr-defined] # only used as annotation
    package.AfterValidator = lambda check: None  # type: ignore[attr-defined] # likewise
    package.ConfigDict = dict  # type: ignore[attr-defined]
    package.ValidationError = ValidationError  # type: ignore[attr-defined]
    package.InstanceOf = InstanceOf  # type: ignore[attr-defined]
    package.TypeAdapter = MagicMock()  # type: ignore[attr-defined]
    for prefix in ("Positive", "NonNegative", "Negative", "NonPositive"):
        setattr(package, f"{prefix}Int", int)
        setattr(package, f"{prefix}Float", float)
    package.dataclasses = ModuleType("pydantic.dataclasses")  # type: ignore[attr-defined]
    package.dataclasses.dataclass = dataclass  # type: ignore[attr-defined]
    return {"pydantic": package, "pydantic.dataclasses": package.dataclasses}  # type: ignore[attr-defined]


def stand_in(name: str) -> dict[str, Any]:
    """Return modules that take the place of a missing package."""
    modules = unchecked_pydantic() if name == "pydantic" else {name: MagicMock()}
    for module, value in modules.items():
        value.__spec__ = ModuleSpec(module, None)  # find_spec would fail on a module without a specification
    return modules


for _name in ("pooch", "jinja2", "pydantic"):
    if importlib.util.find_spec(_name) is None:
        sys.modules.update(stand_in(_name))
