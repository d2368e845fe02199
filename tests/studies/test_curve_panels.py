"""Panels of reconstruction curves: one line per network or attack, and the null."""

import torch

from exhume.studies.curve_panels import FLOOR, Panel, attack_panels, curve_panels, draw_side_by_side


def make_row(variant, size, width, error):
    curve = torch.full((size,), error)
    return {
        "source": "digits", "variant": variant, "size": size, "width": width, "curve": curve, "null_curve": curve + 1,
        "values": 64,
    }  # fmt: skip


def names_in(axes):
    return [line.get_label() for line in axes.lines]


def test_rows_are_variants_columns_are_sizes_and_lines_are_widths():
    rows = [make_row(v, s, w, 1.0) for v in ("standard", "linearised") for s in (3, 5, 7) for w in (8, 16)]
    figure = curve_panels(rows)
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert names_in(axes) == ["width 8", "width 16", "held out (null)", "good below"]
    assert [axes.get_title() for axes in figure.axes[:3]] == ["3 images", "5 images", "7 images"]


def test_the_null_is_that_of_the_attack_with_the_lowest():
    rows = [make_row("theirs", 4, 8, 2.0), make_row("ours", 4, 8, 1.0)]
    (axes,) = attack_panels(rows).axes
    assert names_in(axes)[:2] == ["theirs", "ours"]
    null = next(line for line in axes.lines if line.get_label() == "held out (null)")
    assert set(null.get_ydata().tolist()) == {2.0}


def test_an_exact_copy_is_drawn_at_the_floor():
    panel = Panel(lines={"exact": torch.zeros(3)}, null=torch.ones(3), values=10)
    (axes,) = draw_side_by_side({"one": panel}).axes
    assert min(float(value) for value in axes.lines[0].get_ydata()) > 0
    torch.testing.assert_close(torch.as_tensor(axes.lines[0].get_ydata()), torch.full((3,), 10 * FLOOR))
