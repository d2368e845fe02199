"""Audit a model that takes token ids: its text is not reconstructed, but the tokens it was trained on may show."""

from collections.abc import Mapping
from typing import Any

import torch

from exhume.attacks.attack import Attack
from exhume.clues.tokens import EmbeddingTrace, trace_tokens
from exhume.evaluation.network import threat_model
from exhume.records import Applicability, Assessment, AttackerView, Audit, Dataset, Split, StartEvidence, TokenCounts

NOT_RECONSTRUCTED = "The model takes token ids, which exhume does not reconstruct."


def audit_tokens(
    view: AttackerView,
    data: Dataset | None,
    attacks: Mapping[str, Attack],
    start: StartEvidence | None,
    notes: Mapping[str, Any],
) -> Audit:
    """Return what the rows of embeddings show, and that no attack applies."""
    refused = [
        Assessment(attack=name, applies=Applicability.DOES_NOT, reasons=(NOT_RECONSTRUCTED,), settings=repr(attack))
        for name, attack in attacks.items()
    ]
    return Audit(
        evaluations={},
        assessments=tuple(refused),
        given=threat_model(view),
        tokens=tuple(_count(trace, data) for trace in trace_tokens(view)),
        start=start,
        notes=notes,
    )


def _count(trace: EmbeddingTrace, data: Dataset | None) -> TokenCounts:
    moved, size = set(trace.moved.nonzero()[:, 0].tolist()), len(trace.moved)
    trained = _tokens(None if data is None else data.train, size)
    only = _tokens(None if data is None else data.holdout, size) - trained
    return TokenCounts(
        layer=trace.layer,
        evidence=trace.evidence,
        vocabulary=size,
        moved=len(moved),
        trained=None if data is None else (len(moved & trained), len(trained)),
        held_out=None if data is None or not only else (len(moved & only), len(only)),
    )


def _tokens(split: Split | None, vocabulary: int) -> set[int]:
    """Return the distinct token ids of a split."""
    ids = [] if split is None else torch.unique(split.inputs.long()).tolist()
    return {token for token in ids if 0 <= token < vocabulary}
