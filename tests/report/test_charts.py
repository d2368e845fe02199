"""Figures embedded in the page."""

import re
from xml.etree import ElementTree

import pytest

from exhume.report.charts import THEME, embed_chart
from tests.report.synthetic_audits import make_audit


@pytest.mark.parametrize("name", ["curve", "roc", "spectrum"])
def test_embedded_figures_follow_the_colours_of_the_page(name):
    chart = str(embed_chart(name, make_audit(), label="A figure", prefix="first"))
    root = ElementTree.fromstring(chart.replace("xlink:", ""))
    assert root.get("role") == "img"
    assert "var(--ink)" in chart
    assert not any(colour in chart for colour in THEME)
    assert all(name.startswith("first-") for name in re.findall(r'\bid="([^"]+)"', chart))


def test_the_label_is_escaped():
    chart = embed_chart("curve", make_audit(), label='"><script>', prefix="first")
    assert "<script>" not in chart
    assert 'aria-label="&#34;&gt;&lt;script&gt;"' in chart


def test_a_figure_without_data_is_omitted():
    assert embed_chart("curve", make_audit(known=False), label="", prefix="first") is None
