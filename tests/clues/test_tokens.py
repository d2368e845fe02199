"""Which rows of an embedding moved: exactly those of the tokens that were trained on."""

import copy

import pytest
import torch
from torch import nn

from exhume.clues.tokens import rows_that_moved, trace_tokens
from exhume.records import AttackerView

TOKENS = torch.tensor([[1, 4, 4, 7], [9, 1, 30, 7]])


def train_on_tokens(*, decay: float = 0.0, adam: bool = True) -> AttackerView:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(40, 6), nn.Flatten(), nn.Linear(24, 1))
    initial = copy.deepcopy(model.state_dict())
    kind = torch.optim.AdamW if adam else torch.optim.SGD
    optimiser = kind(model.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(20):
        optimiser.zero_grad()
        model(TOKENS).sub(1.0).square().sum().backward()
        optimiser.step()
    return AttackerView(model=model, initial=initial, final=model.state_dict(), input_shape=(4,), bounds=None)


@pytest.mark.parametrize("adam", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_rows_that_moved_are_the_tokens_of_the_training_text(adam, decay):
    (trace,) = trace_tokens(train_on_tokens(decay=decay, adam=adam))
    assert trace.moved.nonzero()[:, 0].tolist() == sorted(set(TOKENS.flatten().tolist()))
    assert (trace.layer, trace.evidence, trace.is_telling) == ("0", "weight change", True)


def test_a_gradient_shows_the_tokens_of_its_batch():
    view = train_on_tokens()
    gradient = {"0.weight": torch.zeros(40, 6)}
    gradient["0.weight"][[3, 5]] = 0.1
    held = AttackerView(model=view.model, final=view.final, gradient=gradient, input_shape=(4,), bounds=None)
    (trace,) = trace_tokens(held)
    assert (trace.evidence, trace.moved.nonzero()[:, 0].tolist()) == ("gradient", [3, 5])


def test_rows_that_all_moved_tell_nothing():
    generator = torch.Generator().manual_seed(0)
    before, after = torch.randn(2, 30, 5, generator=generator, dtype=torch.float64)
    assert int(rows_that_moved(before, after).sum()) >= 29
    assert not rows_that_moved(before, before).any()
