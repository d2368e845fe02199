"""Settings of multi-layer perceptrons."""

import pytest

from exhume.core.errors import ExhumeError
from exhume.models.mlp import MLP


@pytest.mark.parametrize(
    ("setting", "value"),
    [("width", 0), ("depth", -1), ("activation", "swish"), ("parameterisation", "he"), ("bias", "last")],
)
def test_impossible_settings_are_refused_by_name(setting, value):
    with pytest.raises(ExhumeError, match=rf"^MLP: {setting} should be .+, not {value!r}\.$"):
        MLP(**{setting: value})


def test_the_representation_names_every_setting():
    assert repr(MLP(width=3, depth=1)) == (
        "MLP(width=3, depth=1, activation='relu', bias='all', parameterisation='standard')"
    )
