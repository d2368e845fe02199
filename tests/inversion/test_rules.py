"""Thresholds of the inversion."""

import pytest
from pydantic import ValidationError

from exhume.core.errors import ExhumeError
from exhume.inversion.rules import InversionRules


@pytest.mark.parametrize("name", ["reproduced", "precision", "hidden", "shared"])
def test_thresholds_are_positive(name: str) -> None:
    with pytest.raises((ValidationError, ExhumeError)):
        InversionRules(**{name: -1.0})
