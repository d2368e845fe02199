"""Reconstruction curves: figures share their networks, and a small grid shows the paper's observations."""

from dataclasses import replace

import pytest

from exhume.studies.grid import LINEARISED, STANDARD, Effort
from exhume.studies.loo2023.figures2_4_5 import SMOKE, measure_curves
from exhume.studies.loo2023.observations import linearised_is_better, smaller_is_easier, wider_resolves_more
from exhume.studies.study import StudyRun, read_result

CURVES = ("figure2", "figure4", "figure5", "figureS3", "figureS5", "figureS6")


@pytest.mark.parametrize("name", CURVES)
def test_a_figure_has_curves_with_their_null(name, run_smoke):
    folder = run_smoke(name)
    result = read_result(folder)
    assert result["figures"] == [f"{name}-digits"]
    assert (folder / f"{name}-digits.png").stat().st_size > 1000
    assert (folder / f"{name}-digits.svg").exists()
    assert "The paper finds" in result["summary"]
    for row in result["numbers"]["rows"]:
        assert len(row["null_curve"]) == len(row["curve"]) > 0
        assert row["curve"] == sorted(row["curve"])
        assert 0 <= row["null_good"] <= row["size"]


def test_figures_share_networks(run_smoke):
    folders = [run_smoke(name) for name in CURVES]
    assert not any(list((folder / "cells").rglob("*.safetensors")) for folder in folders)
    shared = folders[0].parent / "shared-cells"
    networks = [path for path in shared.rglob("*.safetensors") if path.parent.name in ("digits-two", "digits-ten")]
    grid = [path for path in networks if path.name.startswith(("10-16-", "10-64-", "14-16-", "14-64-"))]
    # Two sizes and two widths of networks: standard, linearised, stopped early, ten classes, ten classes linearised;
    # Figure S1 may add one network of its own.
    assert 20 <= len(grid) <= 21


def test_the_papers_observations_hold_in_a_small_grid(tmp_path):
    grid = replace(SMOKE, sizes=(6, 16), widths=(24, 96), effort=Effort(candidates=3.0, steps=200, stop_loss=1e-4))
    run = StudyRun(folder=tmp_path, device="cpu")
    found = measure_curves(grid, run, (STANDARD, LINEARISED), "small", lambda rows: [
        smaller_is_easier(rows), wider_resolves_more(rows), linearised_is_better(rows),
    ])  # fmt: skip
    observed = found.numbers["observations"]["digits"]
    assert [one["holds"] for one in observed] == [True, True, True], found.summary
    assert found.summary.count("this holds here") == 3
