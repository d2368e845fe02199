"""Figure 1: pairs of reconstructions and training images."""

from exhume.studies.study import read_result


def test_pairs_are_shown_from_best_to_worst(run_smoke):
    result = read_result(run_smoke("figure1"))
    assert result["figures"] == ["figure1-digits"]
    errors = result["numbers"]["digits"]["pair_squares"]
    assert len(errors) == 5
    assert errors == sorted(errors)
    assert "Of 8 images of digits at width 64" in result["summary"]
