"""Figure 8: attacks on networks trained on distilled sets, and Figure S4, the same at every size."""

import pytest

from exhume.studies.loo2023.figure8 import only_rkip_reveals_originals
from exhume.studies.study import read_result


@pytest.mark.parametrize("name", ["figure8", "figureS4"])
def test_every_method_has_a_curve_and_a_null(name, run_smoke):
    folder = run_smoke(name)
    result = read_result(folder)
    assert result["figures"] == [f"{name}-digits-8"]
    assert (folder / f"{name}-digits-8.png").stat().st_size > 1000
    for cell in result["numbers"]["digits"]["8"].values():
        assert len(cell["curve"]) == 8
        assert 0 <= cell["null_good"] <= 8
    assert result["numbers"]["digits"]["8"]["full data"]["copies"] == 8


def test_the_observation_can_turn_out_false():
    counts = {"KIP": 0, "RKIP": 9, "RKIP 5% noise": 1}
    attacked = {"digits": {"20": {name: {"good": count, "recovered": 9} for name, count in counts.items()}}}
    assert only_rkip_reveals_originals(attacked)[0].holds
    assert "false positives after KIP 9" in only_rkip_reveals_originals(attacked)[0].sentence
    attacked["digits"]["20"]["KIP"]["good"] = 9
    assert not only_rkip_reveals_originals(attacked)[0].holds
