"""Parts of figures: names without overlap, one dot per group."""

import itertools

import pytest
from matplotlib.figure import Figure

from exhume.studies.drawing import LINE, dot_rows, named_lines, write_names_beside


def test_every_line_has_its_name_at_its_right_end():
    lines = {"low": ([1.0, 2.0], [1.0, 1.0]), "high": ([1.0, 2.0], [1.0, 9.0])}
    (axes,) = named_lines(lines, x="x", y="y", log_y=True).axes
    assert len(axes.lines) == 2
    assert axes.get_yscale() == "log"
    heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert heights["low"] < heights["high"]


def test_names_at_one_height_are_moved_apart():
    axes = Figure().add_subplot()
    axes.plot([0, 1], [0, 1])
    write_names_beside(axes, dict.fromkeys("abcde", 1.0))
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert len(heights) == 5
    assert max(heights) <= 1.0
    assert all(above - below >= LINE - 1e-9 for below, above in itertools.pairwise(heights))


def test_missing_dots_are_left_out_and_published_ones_are_hollow():
    groups = {"first": [(1.0, 0.1), None], "second": [(2.0, 0.1), (3.0, 0.1)]}
    (axes,) = dot_rows(["a", "b"], groups, x="x", hollow={"first": [1.5, None], "second": [None, None]}).axes
    assert len(axes.containers) == 3
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [line.get_xdata()[0] for line in hollow] == [pytest.approx(1.5)]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second", "published"]
