"""Settings of residual networks."""

import pytest

from exhume.core.errors import ExhumeError
from exhume.models.architecture import Architecture
from exhume.models.resnet import ResNet


@pytest.mark.parametrize(("setting", "value"), [("channels", 0), ("blocks", ())])
def test_impossible_settings_are_refused_by_name(setting, value):
    with pytest.raises(ExhumeError, match=rf"^ResNet: {setting} should"):
        ResNet(**{setting: value})


def test_settings_survive_a_file():
    settings = ResNet(channels=4, blocks=(1, 2))
    assert Architecture.from_description(settings.describe() | {"blocks": [1, 2]}) == settings
