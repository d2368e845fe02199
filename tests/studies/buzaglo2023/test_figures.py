"""Figures of final weights: shares by case with their null, and the gallery of the best row."""

import torch

from exhume.studies.buzaglo2023.cases import Case, Plan
from exhume.studies.buzaglo2023.figures import gallery_figure, recovery_figure

PLAN = Plan(cases=(Case(label="a"), Case(label="b")), seeds=2)


def make_row(label, recovered, exact=0):
    images = torch.full((3, 1, 4, 4), 0.5)
    return {
        "label": label, "recovered": recovered, "recovered_null": 1, "exact": exact, "training_size": 10,
        "shown": images, "originals": images,
    }  # fmt: skip


def test_lines_are_means_over_seeds_and_exact_ones_appear_if_there_are_any():
    rows = [make_row("a", 2), make_row("a", 4), make_row("b", 8), make_row("b", 10)]
    (axes,) = recovery_figure(PLAN, rows, "decay").axes
    assert [line.get_label() for line in axes.lines] == ["trained on", "held out (null)"]
    assert [round(float(value), 6) for value in axes.lines[0].get_ydata()] == [0.3, 0.9]
    (axes,) = recovery_figure(PLAN, [*rows, make_row("b", 9, exact=1)], "decay").axes
    assert axes.lines[-1].get_label() == "trained on, exactly"


def test_the_gallery_shows_two_rows_of_images():
    (axes,) = gallery_figure([make_row("a", 2), make_row("b", 8)]).axes
    assert [text.get_text() for text in axes.texts] == ["reconstructed", "trained on"]
