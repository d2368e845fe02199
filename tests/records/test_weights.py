"""Weights: whether they belong to a model, and how many outputs it has."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exhume.core.errors import ExhumeError
from exhume.records import count_outputs


def test_outputs_are_counted_as_users_run_the_model_and_leave_it_as_it_was() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))
    model[4].eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    assert count_outputs(model, (1, 2, 2)) == 3
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


class ReturnsDict(nn.Linear):
    """Returns its outputs under a name, as models of some libraries do."""

    def forward(self, inputs: Tensor) -> Any:
        return {"logits": super().forward(inputs)}


@pytest.mark.parametrize(("model", "message"), [(nn.Linear(5, 2), r"\(4,\)"), (ReturnsDict(4, 2), "returns a dict")])
def test_a_model_that_takes_or_returns_something_else_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(ExhumeError, match=message) as refusal:
        count_outputs(model, (4,))
    assert "\n" not in str(refusal.value)
