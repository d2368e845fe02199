"""Models that take token ids: the verdict says which tokens were trained on, and that no text is reconstructed."""

from dataclasses import replace

import torch

from exhume.auditing import audit, audit_to_json
from exhume.evaluation import Finding, verdict
from exhume.records import Dataset
from exhume.report import report
from tests.clues.test_tokens import TOKENS, train_on_tokens


def test_the_tokens_of_the_training_text_show_beside_those_of_held_out_text(tmp_path):
    data = Dataset.from_arrays(TOKENS, torch.tensor([[1, 2, 3, 5]]), bounds=None)
    audited = audit(train_on_tokens(), data)
    result = verdict(audited)
    assert result.finding is Finding.TRACES
    assert result.sentence == (
        "The embedding shows which tokens were trained on: 5 of 40 rows moved. The text was not reconstructed."
    )
    assert "5 of the 5 distinct tokens of the training text moved" in result.detail
    assert "0 of the 3 tokens that only held-out text has" in result.detail
    assert audit_to_json(audited)["tokens"][0]["moved"] == 5
    report(audited, tmp_path / "report.html")
    assert "which tokens were trained on" in (tmp_path / "report.html").read_text()


def test_without_data_the_rows_are_counted_alone():
    assert "5 of 40 rows moved" in verdict(audit(train_on_tokens())).sentence


def test_without_evidence_nothing_is_claimed():
    result = verdict(audit(replace(train_on_tokens(), initial=None)))
    assert result.finding is Finding.UNTESTED
    assert "token ids" in result.sentence
