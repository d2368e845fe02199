"""Figures that open, stay the same, and leave matplotlib's state alone."""

import ast
import io
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
import torch
from PIL import Image

import exhume
from exhume.records import Outcome
from exhume.report.figures import create_axes, draw_figures, render, save_figures, use_log_scale
from tests.report.synthetic_audits import make_audit

SHAPES = ((1, 8, 8), (1, 25, 25), (3, 32, 32), (30,))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_figure_is_written_as_png_and_svg(tmp_path, shape):
    paths = save_figures(make_audit(shape), tmp_path / "figures")
    names = {"curve", "roc", "spectrum"} | ({"gallery"} if len(shape) == 3 else set())
    assert {path.name for path in paths} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for path in paths:
        if path.suffix == ".png":
            assert Image.open(path).convert("L").getextrema()[0] < 128  # something is drawn on the white
        else:
            assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(path.name for path in paths)


def test_logarithmic_axes_have_labels_in_plain_text():
    for heights, some in (([1e-7, 3.0], {"10⁻⁷", "10⁰"}), ([2.0, 8.0], {"$\\mathdefault{3\\times10^{0}}$"})):
        figure, axes = create_axes()
        axes.plot(heights)
        use_log_scale(axes)
        figure.draw_without_rendering()
        labels = axes.get_yticklabels() + axes.get_yticklabels(minor=True)
        assert some <= {label.get_text() for label in labels}


def test_without_data_there_is_no_curve_to_draw():
    assert set(draw_figures(make_audit(known=False))) == {"gallery", "spectrum"}


def test_an_attack_that_found_nothing_has_a_roc_curve():
    nothing = make_audit(
        inputs=torch.zeros(0, 1, 8, 8),
        certified=torch.zeros(0, dtype=torch.bool),
        confidence=torch.zeros(0),
        p_values=None,
        outcome=Outcome.NOTHING_FOUND,
        diagnostics={},
    )
    assert set(draw_figures(nothing)) == {"roc"}


def test_the_same_audit_gives_the_same_bytes_and_settings_stay_untouched():
    before = dict(matplotlib.rcParams)
    evaluation = make_audit()
    for kind in ("png", "svg"):
        first, second = (
            {name: render(drawn, kind) for name, drawn in draw_figures(evaluation).items()} for _ in range(2)
        )
        assert first == second
    assert dict(matplotlib.rcParams) == before


def test_the_gallery_keeps_colours():
    drawn = draw_figures(make_audit((3, 32, 32)))["gallery"]
    image = Image.open(io.BytesIO(render(drawn, "png"))).convert("RGB")
    red, green, blue = image.split()
    assert any(a.getextrema() != b.getextrema() or a.tobytes() != b.tobytes() for a, b in ((red, green), (green, blue)))


def test_no_module_imports_pyplot():
    """Importing it chooses a back end for the whole process, which is the caller's to choose."""
    for path in Path(exhume.__file__).parent.rglob("*.py"):
        names = [
            f"{getattr(node, 'module', '')}.{alias.name}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        assert not [name for name in names if "pyplot" in name], path
