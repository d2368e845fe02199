"""Scores: each with its counterpart on held-out data, and numbers that do not overstate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.report.scores import format_p_value, list_scores
from tests.report.synthetic_audits import SHAPES, make_audit


def test_every_score_has_its_counterpart_on_held_out_data():
    for shape in SHAPES:
        rows = list_scores(make_audit(shape))
        assert {"certified", "exact", "good", "nearer than 99% of held out"} <= {row.name for row in rows}
        assert all(row.held_out != "–" for row in rows)


def test_without_data_only_certificates_are_counted():
    [row] = list_scores(make_audit(known=False))
    assert (row.name, row.trained, row.held_out) == ("certified", "5", "–")


@given(st.floats(0, 1))
def test_a_p_value_is_never_printed_smaller_than_it_is(p_value):
    sign, bound = format_p_value(p_value).split()[1:]
    assert p_value < float(bound) if sign == "<" else float(bound) == pytest.approx(p_value, rel=0.06)
