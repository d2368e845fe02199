"""Figure 9: distilled images beside the nearest training images."""

from exhume.cli import main
from exhume.studies.loo2023.figure9 import only_rkip_copies
from exhume.studies.study import read_result


def test_a_finished_study_is_not_measured_again(tmp_path):
    command = ["reproduce", "figure9", "--preset", "smoke", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    assert main(command) == 0
    assert read_result(tmp_path / "figure9")["figures"] == ["figure9-digits"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "figure9" / "cells").rglob("*.safetensors")}
    assert len(before) == 3
    assert main(command) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_the_observation_can_turn_out_false():
    counts = {"KIP": 0, "RKIP": 9, "RKIP 5% noise": 0}
    copies = {"digits": {name: {"copied_examples": count} for name, count in counts.items()}}
    assert only_rkip_copies(copies)[0].holds
    copies["digits"]["RKIP 5% noise"]["copied_examples"] = 1
    assert not only_rkip_copies(copies)[0].holds, "one copy in spite of the noise is a copy"
