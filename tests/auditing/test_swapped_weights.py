"""Initial and final weights in the wrong order are noticed."""

from dataclasses import replace

import torch
from torch import nn

from exhume.auditing.swapped_weights import describe_swap
from exhume.records import AttackerView
from tests.auditing.audited_networks import digits, trained


def swap(view: AttackerView) -> AttackerView:
    assert view.initial is not None
    return replace(view, initial=view.final, final=view.initial)


def plain_view(*, with_batch_norm: bool = False) -> AttackerView:
    norm = [nn.BatchNorm1d(64)] if with_batch_norm else []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), *norm, nn.ReLU(), nn.Linear(64, 1))
    initial = {name: weight.clone() for name, weight in model.state_dict().items()}
    split = digits().train
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(split.inputs)[:, 0], split.labels.float()).backward()
        optimiser.step()
    return AttackerView(model=model, initial=initial, final=dict(model.state_dict()), input_shape=(1, 8, 8))


def test_weights_in_the_right_order_raise_no_alarm() -> None:
    for view in (trained(), plain_view(), plain_view(with_batch_norm=True), replace(trained(), initial=None)):
        assert describe_swap(view, digits()) is None
        assert describe_swap(view, None) is None


def test_swapped_weights_are_noticed_by_accuracy_counters_or_range() -> None:
    assert "classify" in str(describe_swap(swap(plain_view()), digits()))
    assert "look like those of a new PyTorch module" in str(describe_swap(swap(plain_view()), None))
    assert "seen more batches" in str(describe_swap(swap(plain_view(with_batch_norm=True)), None))
