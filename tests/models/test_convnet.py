"""Settings of convolutional networks."""

import pytest

from exhume.core.errors import ExhumeError
from exhume.models.convnet import ConvNet


@pytest.mark.parametrize(("setting", "value"), [("channels", 0), ("depth", 0), ("activation", "swish")])
def test_impossible_settings_are_refused_by_name(setting, value):
    with pytest.raises(ExhumeError, match=rf"^ConvNet: {setting} should be .+, not {value!r}\.$"):
        ConvNet(**{setting: value})
