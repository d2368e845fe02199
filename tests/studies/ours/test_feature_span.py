"""The span of features: training images and their mixtures lie inside, held-out images do not."""

from exhume.studies.study import read_result


def test_smoke_tells_training_images_from_held_out_ones(run_smoke):
    result = read_result(run_smoke("feature-span"))
    (row,) = result["numbers"]["rows"]
    assert row["estimate"] == row["size"]
    assert row["trained"] < row["held_out"]
    assert row["auc"] == 1.0
    assert 0.2 < row["auc_null"] < 0.8
    assert row["mixtures"] < 0.5 * row["held_out"]
