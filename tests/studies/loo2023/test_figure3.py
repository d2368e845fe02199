"""Figures 3 and S2: error against the change of the kernel."""

import pytest

from exhume.studies.study import read_result


@pytest.mark.parametrize(("name", "observations"), [("figure3", 1), ("figureS2", 2)])
def test_every_network_has_a_kernel_distance_and_an_error(name, observations, run_smoke):
    result = read_result(run_smoke(name))
    assert result["figures"] == [f"{name}-digits"]
    assert len(result["numbers"]["observations"]["digits"]) == observations
    for row in result["numbers"]["rows"]:
        assert row["kernel_distance"] > 0
        assert row["mean_error"] > 0


def test_networks_are_those_of_figure2(run_smoke):
    two, three = (read_result(run_smoke(name))["numbers"]["rows"] for name in ("figure2", "figure3"))
    assert [row for row in two if row["variant"] == "standard"] == three
