"""Models that return more than a tensor."""

from types import SimpleNamespace

import torch
from torch import nn

from exhume.models.outputs import take_tensor, with_tensor_output


class Returning(nn.Module):
    """A dense network that wraps its outputs."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self.body, self.wrap = nn.Linear(4, 2), wrap

    def forward(self, inputs):
        return self.wrap(self.body(inputs))


def test_the_outputs_are_found_where_they_are_clear():
    one, other = torch.ones(2), torch.zeros(2)
    assert take_tensor(one) is one
    assert take_tensor({"features": other, "logits": one}) is one
    assert take_tensor({"anything": one, "loss": None}) is one
    assert take_tensor((one, "text")) is one
    assert take_tensor(SimpleNamespace(logits=one, hidden=other)) is one
    assert take_tensor({"left": one, "right": other}) is None
    assert take_tensor("text") is None


def test_a_copy_returns_the_tensor_and_the_model_itself_stays_as_it_is():
    model = Returning(lambda outputs: {"logits": outputs, "norm": outputs.norm()})
    wrapped = with_tensor_output(model, (4,))
    inputs = torch.ones(3, 4)
    assert isinstance(model(inputs), dict)
    torch.testing.assert_close(wrapped(inputs), model(inputs)["logits"])
    assert wrapped.state_dict().keys() == model.state_dict().keys()
    assert model.training


def test_models_that_return_tensors_or_cannot_be_called_are_left_alone():
    for model in (Returning(lambda outputs: outputs), Returning(lambda outputs: "text"), nn.Embedding(5, 2)):
        assert with_tensor_output(model, (4,)) is model
