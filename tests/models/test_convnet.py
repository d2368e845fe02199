"""Settings of convolutional networks."""

import pytest

from exhume.core.errors import ExhumeError
from exhume.models.convnet import ConvNet


@pytest.mark.parametrize(("setting", "value"), [("channels", 0), ("depth", 0), ("activation", "swish")])
def test_impossible_settings_are_refused_by_name(setting, value):
    with pytest.raises(ExhumeError, match=rf"^ConvNet: {setting} should be .+, not {value!r}\.$"):
        ConvNet(**{setting: value})


def test_hidden_units_add_a_dense_layer_with_its_activation():
    names = [name for name, _ in ConvNet(channels=2, hidden=7).build((1, 8, 8), 3).named_children()]
    assert names[-4:] == ["flatten", "hidden", "activation", "readout"]
    assert "hidden" not in dict(ConvNet(channels=2).build((1, 8, 8), 3).named_children())
