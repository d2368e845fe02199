"""The map of exact recovery: many units an example give everything away, too few give nothing, and none is false."""

from exhume.studies import STUDIES
from exhume.studies.ours.certificate_map import Land, _measured
from exhume.studies.study import Bench, read_result


def test_smoke_shows_both_ends_of_the_map(tmp_path):
    found = STUDIES["certificate-map"].run("smoke", tmp_path, device="cpu")
    narrow, wide = read_result(tmp_path)["numbers"]["rows"]
    assert (narrow["exact"], wide["exact"], wide["certified"]) == (0.0, 1.0, 1.0)
    assert narrow["false_certificates"] == wide["false_certificates"] == 0
    assert (tmp_path / "certificate-map.png").stat().st_size > 5000
    assert "false: 0" in found.summary


def test_a_network_whose_rank_does_not_show_counts_as_nothing_found(tmp_path):
    bench = Bench(folder=tmp_path, device="cpu")
    found = _measured("digits", 60, 60, 0, Land(sources=(), ratios=()), bench)
    assert (found["exact"], found["certified"]) == (0, 0)
