"""The loss of a training: user functions by what they compute, names by the view, labels as the loss takes them."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from exhume.clues.known_loss import CustomLoss, balanced_labels, encode_targets, resolve_loss, with_stable_repr
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from exhume.training.losses import LOSSES


def view_with(outputs: int) -> AttackerView:
    model = MLP(width=4).build((3,), outputs, torch.Generator().manual_seed(0))
    return AttackerView(model=model, final=model.state_dict(), input_shape=(3,))


def squared(outputs, targets):
    return functional.mse_loss(outputs, targets.expand_as(outputs))


def same_values(outputs, targets):
    return (outputs - targets).square().mean()


same_values.__qualname__ = squared.__qualname__


def other_values(outputs, targets):
    return (outputs - targets).abs().mean()


other_values.__qualname__ = squared.__qualname__


def test_a_function_is_recognised_by_its_values_and_name():
    assert repr(CustomLoss(squared)) == repr(CustomLoss(same_values))
    assert repr(CustomLoss(squared)) != repr(CustomLoss(other_values))
    assert repr(CustomLoss(squared)).startswith("squared#")


def test_a_function_for_one_number_of_outputs_still_has_a_digest():
    def for_two(outputs, targets):
        if outputs.shape[1] != 2:
            raise ValueError("two outputs only")
        return outputs.sum()

    assert repr(CustomLoss(for_two)) == repr(CustomLoss(for_two))


def test_wrapping_keeps_names_and_wraps_once():
    assert with_stable_repr("mse") == "mse"
    assert with_stable_repr(None) is None
    wrapped = with_stable_repr(squared)
    assert with_stable_repr(wrapped) is wrapped
    assert float(wrapped(torch.ones(2, 1), torch.zeros(2, 1))) == 1.0


def test_a_requested_loss_wins_over_the_view():
    view = replace(view_with(1), training={"loss": "bce"})
    assert resolve_loss("mse", view) is LOSSES["mse"]
    assert resolve_loss(squared, view) is squared
    assert resolve_loss(None, view) is LOSSES["bce"]
    assert resolve_loss(None, view_with(1)) is None


def test_an_unknown_loss_is_refused():
    with pytest.raises(Refusal, match="unknown loss 'foo'"):
        resolve_loss(None, replace(view_with(1), training={"loss": "foo"}))


@pytest.mark.parametrize("outputs", [1, 3, 5])
def test_labels_are_balanced_and_encoded_for_every_output(outputs):
    labels = balanced_labels(11, outputs, torch.device("cpu"))
    counts = torch.bincount(labels)
    assert len(counts) == max(2, outputs)
    assert int(counts.max() - counts.min()) <= 1
    assert encode_targets(LOSSES["mse"], labels, view_with(outputs)).shape == (11, outputs)
    torch.testing.assert_close(
        encode_targets(squared, labels, view_with(outputs)), encode_targets(LOSSES["mse"], labels, view_with(outputs))
    )
