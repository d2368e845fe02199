"""Figure S1: with known initial weights, and from final weights alone."""

from exhume.studies.study import read_result


def test_both_attacks_are_measured_with_their_null(run_smoke):
    result = read_result(run_smoke("figureS1"))
    known, alone = result["numbers"]["rows"]
    assert (known["variant"], alone["variant"]) == ("start known", "final weights alone")
    for row in (known, alone):
        assert len(row["null_curve"]) == len(row["curve"]) > 0
    assert alone["candidates"] > 0
    assert "in the paper" in result["summary"]
