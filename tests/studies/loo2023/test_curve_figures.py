"""The figures of reconstruction: from the command line at their smallest, and what their sentences rest on."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.cli import main
from exhume.core.errors import ExhumeError
from exhume.data.known_sources import available
from exhume.studies import MAIN_PAPER, STUDIES, named
from exhume.studies.grid import LINEARISED, STANDARD, TEN_CLASSES, Effort, mean_curve, share, where
from exhume.studies.loo2023.curve_figures import SMOKE, curves
from exhume.studies.loo2023.distillation_observations import (
    few_teach_much,
    only_kip_fails_to_transfer,
    only_rkip_copies,
    only_rkip_gives_originals_away,
)
from exhume.studies.loo2023.observations import (
    error_follows_kernel_distance,
    linearised_is_better,
    more_classes_are_better,
    smaller_is_easier,
    wider_resolves_more,
)
from exhume.studies.study import Bench, read_result
from exhume.studies.trial import Trial, at_hand

CURVES = ("figure2", "figure3", "figure4", "figure5", "figureS2", "figureS3", "figureS5", "figureS6")
OTHERS = ("figure1", "figureS1", "figureS4", "theirs-and-ours")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Every study of this part, run together as a person would."""
    out = tmp_path_factory.mktemp("reproduce")
    assert (
        main(["reproduce", *CURVES, *OTHERS, "--preset", "smoke", "--device", "cpu", "--quiet", "--out", str(out)]) == 0
    )
    return out


@pytest.mark.parametrize("name", [*CURVES, *OTHERS])
def test_a_study_leaves_numbers_pictures_and_the_null(name, results):
    result = read_result(results / name)
    assert result["figures"]
    for figure in result["figures"]:
        assert (results / name / f"{figure}.png").stat().st_size > 1000
        assert (results / name / f"{figure}.svg").exists()
    assert "paper" in result["summary"]
    for row in result["numbers"].get("rows", []):
        assert len(row["null_curve"]) == len(row["curve"]) > 0
        assert row["curve"] == sorted(row["curve"])
        assert 0 <= row["null_good"] <= row["size"]


def test_figures_share_what_they_have_in_common(results):
    shared = list((results / "shared-cells").rglob("*.safetensors"))
    own = {name: list((results / name / "cells").rglob("*.safetensors")) for name in CURVES}
    assert not any(own.values())
    # Two sizes and two widths of networks that are standard, linearised, stopped early, of ten classes, and of ten and
    # linearised; Figures 1 and S1: one each; theirs and ours: three.
    assert len(shared) == 5 * 4 + 2 + 3


def test_curves_of_one_network_are_the_same_in_every_figure(results):
    two, three = (read_result(results / name)["numbers"]["rows"] for name in ("figure2", "figure3"))
    assert [row for row in two if row["variant"] == "standard"] == three


def test_the_certificate_is_ahead_of_the_recipe_on_the_same_network(results):
    rows = read_result(results / "theirs-and-ours")["numbers"]["rows"]
    theirs, _, proven = rows
    assert theirs["training_loss"] == proven["training_loss"]
    assert proven["certified"] == proven["exact"] == 8 > theirs["exact"]
    assert proven["false_certificates"] == 0


def test_the_papers_observations_hold_in_a_small_grid(tmp_path):
    grid = replace(SMOKE, sizes=(6, 16), widths=(24, 96), effort=Effort(candidates=3.0, steps=300))
    found = curves(grid, Bench(folder=tmp_path, device="cpu"), (STANDARD, LINEARISED), "small", lambda rows: [
        smaller_is_easier(rows), wider_resolves_more(rows), linearised_is_better(rows),
    ])  # fmt: skip
    assert [one["holds"] for one in found.numbers["observations"]["digits"]] == [True, True, True]
    assert found.summary.count("so it is here") == 3


def row(size, width, good, variant="standard", distance=0.1, error=1.0):
    curve = torch.full((size,), error)
    return {
        "size": size, "width": width, "good": good, "fine": good, "variant": variant, "kernel_distance": distance,
        "curve": curve,
    }  # fmt: skip


def test_observations_can_turn_out_false():
    easy = [row(10, 64, 10), row(100, 64, 20)]
    assert smaller_is_easier(easy).holds
    hard = smaller_is_easier([row(10, 64, 1), row(100, 64, 20)])
    assert not hard.holds
    assert "not so here (10 images 0.1, 100 images 0.2)" in hard.sentence
    assert not smaller_is_easier(easy[:1]).holds  # one size shows nothing
    assert wider_resolves_more([row(10, 64, 1), row(10, 128, 1), row(10, 256, 3)]).holds
    assert not wider_resolves_more([row(10, 64, 1), row(10, 128, 4), row(10, 256, 3)]).holds
    same = [row(10, 64, 5), row(10, 64, 5, LINEARISED.name), row(10, 64, 5, TEN_CLASSES.name)]
    assert not linearised_is_better(same).holds
    assert linearised_is_better([row(10, 64, 5), row(10, 64, 6, LINEARISED.name)]).holds
    assert not linearised_is_better([row(10, 64, 5), row(10, 64, 6, LINEARISED.name) | {"fine": 5}]).holds  # no better
    assert not more_classes_are_better(same).holds
    rising = [row(10, 64, 5, distance=0.1 * n, error=float(n)) for n in range(1, 6)]
    assert error_follows_kernel_distance(rising).values["rank correlation"] == pytest.approx(1.0)
    falling = [row(10, 64, 5, distance=0.1 * n, error=-float(n)) for n in range(1, 6)]
    assert not error_follows_kernel_distance(falling).holds


def test_observations_of_distillation_can_turn_out_false():
    accuracy = {
        "digits": {"full data": {"20": 80.0, "100": 90.0}, "KIP": {"20": 80.0, "100": 60.0}, "RKIP": {"100": 88.0}}
    }
    (seen,) = only_kip_fails_to_transfer(accuracy)
    assert seen.holds
    assert seen.values["digits, 100 images, points lost by KIP"] == 30.0
    accuracy["digits"]["KIP"]["100"] = 89.0
    assert not only_kip_fails_to_transfer(accuracy)[0].holds
    counts = {"KIP": 0, "RKIP": 9, "RKIP 5% noise": 1}
    attacked = {"digits": {"20": {name: {"good": count, "recovered": 9} for name, count in counts.items()}}}
    assert only_rkip_gives_originals_away(attacked)[0].holds
    assert "false positives after KIP 9" in only_rkip_gives_originals_away(attacked)[0].sentence
    attacked["digits"]["20"]["KIP"]["good"] = 9
    assert not only_rkip_gives_originals_away(attacked)[0].holds
    copies = {"digits": {name: {"copied_examples": count} for name, count in counts.items()}}
    assert not only_rkip_copies(copies)[0].holds  # one copy through the noise is a copy
    assert few_teach_much({"retrained_accuracy": 72.0, "original_accuracy": 75.0, "copies": 0})[0].holds


def test_rows_are_chosen_shared_and_averaged():
    rows = [row(10, 64, 5), row(10, 128, 10)]
    assert share(rows) == 0.75
    assert share(where(rows, width=128)) == 1.0
    assert torch.equal(mean_curve([row(3, 8, 0, error=1.0), row(3, 8, 0, error=3.0)]), torch.full((3,), 2.0))


def test_every_figure_of_the_paper_is_a_study_with_every_preset():
    assert set(MAIN_PAPER) <= set(STUDIES)
    assert list(STUDIES)[: len(MAIN_PAPER)] == list(MAIN_PAPER)
    for name in (*MAIN_PAPER, "theirs-and-ours"):
        assert set(STUDIES[name].presets) == {"smoke", "cpu", "gpu", "paper"}


def test_the_papers_recipe_is_the_published_one():
    attack = STUDIES["figure2"].presets["paper"].effort.attack(100)
    assert (attack.steps, attack.candidates, attack.learning_rate) == (80_000, 200, 0.02)
    assert attack.within_subspace is False


def test_people_may_spell_studies_in_several_ways():
    assert named(["fig2", "Fig. S2", "figs3", "tab1"], STUDIES) == ["figure2", "figureS2", "figureS3", "table1"]
    assert named(["paper"], STUDIES) == named(["Paper"], STUDIES) == list(MAIN_PAPER)
    assert named(["all"], STUDIES) == [name for name in STUDIES if name != "max-margin"], "its parts are among them"
    assert named([], STUDIES) == []
    with pytest.raises(ExhumeError, match="did you mean figure2"):
        named(["figur2x"], {"figure2": 0})


def test_the_source_at_hand_is_one_that_is_here():
    here = [one.name for one in available() if one.present]
    assert at_hand("digits") == "digits"
    assert at_hand("mnist or digits") == ("mnist" if "mnist" in here else "digits")
    assert at_hand("nowhere or faces") == "faces"


def test_a_trial_under_other_settings_is_measured_anew(tmp_path):
    trial = Trial(source="digits", size=4, width=16, attack=Effort(steps=5).attack(4), stop_loss=1e-2)
    bench = Bench(folder=tmp_path, device="cpu")
    first = trial.run(bench)
    assert trial.run(bench)["seconds"] == first["seconds"]
    replace(trial, seed=1).run(bench)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2


RESULTS = Path(__file__).parents[3] / "docs" / "results"


def test_what_was_measured_shows_the_three_observations():
    result = read_result(RESULTS / "figure2-mnist")
    assert result["preset"] == "cpu"
    rows = result["numbers"]["rows"]
    for observe in (smaller_is_easier, wider_resolves_more, linearised_is_better):
        assert observe(rows).holds, observe(rows).sentence
    assert all(row["null_good"] == 0 for row in rows)
