"""The map of exact recovery: many units per example reveal everything, too few nothing, and no certificate is false."""

from exhume.studies.ours.certificate_map import CertificateMap, _attack_network
from exhume.studies.study import StudyRun, read_result


def test_smoke_shows_both_ends_of_the_map(run_smoke):
    folder = run_smoke("certificate-map")
    result = read_result(folder)
    narrow, wide = result["numbers"]["rows"]
    assert (narrow["exact"], wide["exact"], wide["certified"]) == (0.0, 1.0, 1.0)
    assert narrow["false_certificates"] == wide["false_certificates"] == 0
    assert (folder / "certificate-map.png").stat().st_size > 5000
    assert "False certificates: 0" in result["summary"]


def test_a_network_that_the_attack_refuses_counts_as_nothing_found(tmp_path):
    run = StudyRun(folder=tmp_path, device="cpu")
    found = _attack_network("digits", 60, 60, 0, CertificateMap(sources=(), ratios=()), run)
    assert (found["exact"], found["certified"]) == (0, 0)
