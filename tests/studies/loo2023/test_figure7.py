"""Figure 7: the accuracy that distilled sets keep."""

from exhume.studies.loo2023.figure7 import only_kip_fails_to_transfer
from exhume.studies.study import read_result


def test_every_method_has_an_accuracy_by_size(run_smoke):
    folder = run_smoke("figure7")
    result = read_result(folder)
    assert (folder / "figure7-digits.svg").exists()
    found = result["numbers"]["digits"]
    assert set(found) == {"full data", "KIP", "RKIP", "RKIP 5% noise", "RKIP-finite"}
    assert all(0 <= by["8"] <= 100 for by in found.values())


def test_the_observation_can_turn_out_false():
    accuracy = {
        "digits": {"full data": {"20": 80.0, "100": 90.0}, "KIP": {"20": 80.0, "100": 60.0}, "RKIP": {"100": 88.0}}
    }
    (seen,) = only_kip_fails_to_transfer(accuracy)
    assert seen.holds
    assert seen.values["digits, 100 images, points lost by KIP"] == 30.0
    accuracy["digits"]["KIP"]["100"] = 89.0
    assert not only_kip_fails_to_transfer(accuracy)[0].holds
