"""The settings of a minimisation."""

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.optimise import Adam


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"learning_rates": (0.0,)},
        {"learning_rates": (float("nan"),)},
        {"learning_rates": (torch.tensor([0.1, 0.0]),)},
        {"learning_rates": (torch.tensor([0.1, torch.inf]),)},
        {"coarse_share": 2.0},
        {"coarse_share": -0.1},
        {"decay": "linear"},
        {"patience": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ExhumeError):
        Adam(**{"steps": 1, "learning_rates": (0.1,)} | wrong)


@pytest.mark.parametrize(("share", "steps"), [(0.0, 0), (0.3, 30), (1.0, 100)])
def test_the_coarse_share_is_one_of_the_steps(share, steps):
    assert Adam(steps=100, learning_rates=(0.1,), coarse_share=share).coarse_steps == steps
