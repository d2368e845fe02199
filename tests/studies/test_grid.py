"""Grids of trials: rows are selected, counted and averaged."""

import torch

from exhume.studies.grid import (
    PAPER,
    READ_AT,
    Effort,
    attack_table,
    distinct,
    grid_numbers,
    grid_table,
    mean_curve,
    share,
    where,
)


def make_row(size, width, good, *, variant="standard", error=1.0):
    curve = torch.full((size,), error)
    return {
        "source": "digits", "size": size, "width": width, "good": good, "fine": 0, "exact": 0, "variant": variant,
        "curve": curve, "null_curve": curve + 1, "null_good": 0, "certified": 0, "false_certificates": 0,
        "attack_seconds": 1.0,
    }  # fmt: skip


def test_rows_are_selected_counted_and_averaged():
    rows = [make_row(10, 64, 5), make_row(10, 128, 10)]
    assert share(rows) == 0.75
    assert share(where(rows, width=128)) == 1.0
    assert distinct(rows, "width") == [64, 128]
    curves = [make_row(3, 8, 0, error=1.0), make_row(3, 8, 0, error=3.0)]
    assert torch.equal(mean_curve(curves), torch.full((3,), 2.0))


def test_long_curves_are_thinned_for_the_result_file():
    (long,) = grid_numbers([make_row(100, 8, 0, error=1 / 3)])
    assert len(long["curve"]) == len(long["null_curve"]) == len(long["curve_ranks"]) == READ_AT
    assert (long["curve_ranks"][0], long["curve_ranks"][-1]) == (1, 100)
    assert set(long["curve"]) == {0.3333}
    (short,) = grid_numbers([make_row(3, 8, 0)])
    assert short["curve_ranks"] == [1, 2, 3]


def test_tables_have_one_column_per_width_or_one_line_per_attack():
    rows = [make_row(10, 64, 4), make_row(10, 64, 6), make_row(10, 128, 10)]
    head, lines = grid_table(rows)
    assert head == ("data", "training", "images", "good, width 64", "good, width 128", "held out")
    assert lines == [("digits", "standard", "10", "5.0", "10.0", "0.0")]
    head, lines = attack_table(rows)
    assert len(lines) == 3
    assert {len(line) for line in lines} == {len(head)}


def test_the_papers_effort_is_the_published_recipe():
    attack = PAPER.attack(100)
    assert (attack.steps, attack.candidates, attack.learning_rate) == (80_000, 200, 0.02)
    assert attack.within_span is False
    assert Effort(candidates=3.0).attack(10).candidates == 30
