"""The risk of each training example: the most serious finding of any attack."""

import torch

from exhume.report.risk import Risk, rank_risks
from tests.report.synthetic_audits import make_audit


def test_examples_are_ranked_by_their_most_serious_finding():
    rows = rank_risks({"first": make_audit()})
    assert {row.example for row in rows if row.risk is Risk.PROVEN} == {0, 1, 2, 3}
    assert {row.example for row in rows if row.risk is Risk.SHOWN} == {4, 5}
    assert sorted(row.example for row in rows) == list(range(8))
    order = list(Risk)
    assert [order.index(row.risk) for row in rows] == sorted(order.index(row.risk) for row in rows)


def test_the_p_value_of_a_proven_example_is_that_of_its_certificate():
    for row in rank_risks({"first": make_audit()}):
        if row.risk is Risk.PROVEN:
            assert row.p_value == 1e-13
            assert not row.is_least
        else:
            assert row.p_value >= 1 / 9
            assert row.is_least is (row.p_value == 1 / 9)


def test_the_most_serious_of_several_attacks_counts():
    without_proof = make_audit(certified=torch.zeros(9, dtype=torch.bool), p_values=None)
    rows = rank_risks({"second": without_proof, "first": make_audit()})
    assert {row.example: row.attack for row in rows if row.risk is Risk.PROVEN} == dict.fromkeys(range(4), "first")


def test_without_data_no_example_has_a_risk():
    assert rank_risks({"first": make_audit(known=False)}) == []
