"""Caveats hold where they should, and nowhere else."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from exhume.auditing import caveats
from exhume.clues.clues import clues_of
from exhume.records import AttackerView
from exhume.records.public_training import PublicTraining
from tests.auditing.audited_networks import trained, trained_above_frozen_features


def stated(**facts: object) -> AttackerView:
    return replace(trained(), training=PublicTraining.from_facts(facts))


def test_a_plain_network_has_no_caveats() -> None:
    clues = clues_of(stated(loss="ce", optimiser="sgd", weight_decay=1e-3))
    every = (caveats.no_visible_rank, caveats.crowded, caveats.nearly_full, caveats.unclear_count)
    more = (caveats.only_features, caveats.not_a_margin_loss, caveats.no_weight_decay, *caveats.COMMON)
    assert [caveat(clues) for caveat in (*every, *more)] == [None] * len(every + more)


@pytest.mark.parametrize(
    ("caveat", "facts", "words"),
    [
        (caveats.rescaling_optimiser, {"optimiser": "Adam"}, "adam"),
        (caveats.noisy_training, {"epsilon": 3.0}, "differential privacy"),
        (caveats.augmented, {"augmentation": "flips"}, "altered copies"),
        (caveats.not_a_margin_loss, {"loss": "mse"}, "does not maximise a margin"),
        (caveats.no_weight_decay, {}, "not known"),
        (caveats.no_weight_decay, {"weight_decay": 0}, "without weight decay"),
    ],
)
def test_public_facts_about_the_training(caveat, facts, words) -> None:
    assert words in (caveat(clues_of(stated(**facts))) or "")


def test_weights_and_layers() -> None:
    view = trained()
    half = replace(view, final={name: weight.half() for name, weight in view.final.items()})
    assert "float16" in (caveats.coarse(clues_of(half)) or "")
    far = replace(view, final={name: weight + 3 * weight.norm() for name, weight in view.final.items()})
    assert "moved by" in (caveats.moved_features(clues_of(far)) or "")
    assert "features are recovered" in (caveats.only_features(clues_of(trained_above_frozen_features())) or "")
    for layer, caveat in ((nn.Dropout(0.1), caveats.dropout), (nn.BatchNorm1d(64), caveats.batch_norm)):
        model = nn.Sequential(nn.Flatten(), layer, nn.Linear(64, 2))
        other = AttackerView(model=model, final=model.state_dict(), input_shape=(1, 8, 8))
        assert caveat(clues_of(other)) is not None


def test_unseen_rank_is_explained() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(weight.shape, generator=generator) for name, weight in trained().final.items()}
    random = replace(trained(), final=weights)
    reasons = [caveat(clues_of(random)) for caveat in (caveats.no_visible_rank, caveats.nearly_full)]
    assert any(reasons)
