"""Templates: strict and escaped."""

import jinja2
import pytest

from exhume.report.pages import load_template


def test_every_page_has_the_style_and_both_themes():
    template = load_template("exhume.sweeps", "summary.html")
    head = load_template("exhume.report", "page_head.html").make_module().head("<b>", "sha256-x")
    assert "&lt;b&gt;" in head
    assert ':root[data-theme="dark"] { --ink:' in head
    assert template.environment.globals["style"] in head


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        load_template("exhume.report", "template.html").render()
