"""The page: self-contained, well formed, accessible, and deaf to what names try to say."""

import base64
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from exhume.records import Outcome
from exhume.report.bench import bench
from exhume.report.html import page, report
from exhume.report.scores import _rank_name, format_p_value, scores
from tests.report.synthetic_audits import SHAPES, make_audit

ATTACK = "<img src=x onerror=alert(1)>\"'--></style></title><script>alert(2)</script>"
VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """Reads a page strictly: every tag closed in order, every image described, nothing fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.images, self.ids, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(values)
        if "id" in values:
            self.ids.append(values["id"])
        for name, value in values.items():
            assert not name.startswith("on"), f"an event handler slipped in: {name}"
            if name in ("src", "href"):
                assert value.startswith(("data:", "#"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


@pytest.mark.parametrize(("shape", "known"), [*((shape, True) for shape in SHAPES), ((1, 8, 8), False), ((30,), False)])
def test_the_page_is_well_formed_and_fetches_nothing(shape, known):
    text = page(make_audit(shape, known=known))
    read = Page(text)
    assert read.tags.count("script") == 1
    assert "default-src 'none'" in text
    assert len(read.ids) == len(set(read.ids))
    assert all(image["alt"] for image in read.images)
    assert text.index("<h1>") < text.index("<h2")
    assert "http" not in text.replace("http-equiv", "")


def test_the_verdict_comes_first_and_each_certificate_is_spelt_out():
    read = Page(page(make_audit()))
    assert "4 of 8 training images were recovered exactly, each with a proof." in read.text
    assert read.text.count("certified: this image was in the training set, p < 1e-12") == 4
    assert read.text.count("certificate that matches none of the training images given") == 1
    assert "Give the audit all the training data" in read.text
    assert "Synthetic()" in read.text


def test_embedded_pictures_are_the_pictures():
    evaluation = make_audit((3, 32, 32))
    read = Page(page(evaluation))
    pictures = [image for image in read.images if "thumb" not in image.get("class", "")]
    assert len(pictures) == 3 * 8  # recovered, trained on, nearest held out; the false certificate shares an example
    shown = Image.open(io.BytesIO(base64.b64decode(pictures[0]["src"].split(",")[1])))
    assert shown.size == (32, 32)
    assert shown.mode == "RGB"


def test_figures_follow_the_colours_of_the_page():
    text = page(make_audit())
    charts = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(charts) == 3
    for chart in charts:
        ElementTree.fromstring(chart.replace("xlink:", ""))
        assert "var(--ink)" in chart
        assert "#262320" not in chart
        assert 'role="img" aria-label="' in chart
    assert ':root[data-theme="dark"] { --ink:' in text


@pytest.mark.parametrize("shape", [(1, 8, 8), (30,)])
def test_names_stay_text_whatever_they_try(shape):
    evaluation = make_audit(
        shape,
        name=ATTACK,
        classes=(ATTACK, ATTACK + "2"),
        features=(ATTACK,) * 30 if shape == (30,) else None,
        attack=ATTACK,
        message=ATTACK,
        diagnostics={ATTACK: ATTACK},
    )
    object.__setattr__(evaluation, "given", {ATTACK: True, "training": {ATTACK: [ATTACK]}})
    object.__setattr__(evaluation, "versions", {ATTACK: ATTACK})
    text = page(evaluation)
    read = Page(text)
    assert "<img src=x" not in text
    assert text.count("<script") == 1
    assert "<script>alert" not in text
    assert read.text.count("onerror=alert(1)") >= 8


@settings(max_examples=6)
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1))
def test_any_name_at_all_makes_a_well_formed_page(name):
    text = page(make_audit(name=name, classes=(name, name), message=name, diagnostics={}))
    assert f"audit of {name}" in Page(text).text


def test_tables_are_shown_as_tables():
    text = page(make_audit((30,), features=tuple(f"column {place}" for place in range(30))))
    read = Page(text)
    assert "column 29" in read.text
    assert "training records were recovered" in read.text
    assert not any("png" in image["src"] for image in read.images)


@pytest.mark.parametrize("candidates", [0, 3])
def test_a_failed_attack_makes_a_page_too(candidates):
    evaluation = make_audit(
        inputs=torch.full((candidates, 1, 8, 8), math.nan),
        certified=torch.zeros(candidates, dtype=torch.bool),
        confidence=torch.full((candidates,), math.nan),
        p_values=None,
        outcome=Outcome.DIVERGED,
        message="The objective diverged; lower the step size.",
        diagnostics={"loss": math.inf},
    )
    text = Page(page(evaluation)).text
    assert "No training input was recovered by this attack; that is no proof of safety." in text
    assert "lower the step size" in text
    assert "nan" not in text.replace("nan0", "")


def test_the_bench_of_defences_is_the_one_that_was_measured():
    folder = Path(__file__).parents[2] / "docs" / "results" / "defences-digits"
    measured = json.loads((folder / "result.json").read_text())["numbers"]
    shown = bench()
    assert shown.size == measured["size"]
    assert {one.defence: (one.recovered, one.certified) for one in shown.measures} == {
        name: (one["recovered"], one["certified"]) for name, one in measured["defences"].items()
    }
    for one in shown.measures:
        assert one.accuracy == pytest.approx(measured["defences"][one.defence]["accuracy"], abs=0.051)
    assert "DP-SGD ε=8" in page(make_audit())


def test_the_report_is_one_file_written_whole(tmp_path):
    report(make_audit(), tmp_path / "new" / "report.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
    assert (tmp_path / "new" / "report.html").read_text().endswith("</html>")


def test_every_score_of_a_known_data_set_has_its_null():
    for shape in SHAPES:
        rows = scores(make_audit(shape))
        assert {"certified", "exact", "good", "nearer than 99% of held out"} <= {row.name for row in rows}
        assert all(row.held_out != "–" for row in rows)


def test_counts_beside_a_verdict_of_nothing_are_laid_beside_chance():
    inputs = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    blind = {"certified": torch.zeros(8, dtype=torch.bool), "confidence": torch.zeros(8), "p_values": None}
    evaluation = make_audit(inputs=inputs, **blind)
    counts = {row.name: row for row in scores(evaluation)}["nearer than 99% of held out"]
    [level] = [one for one in evaluation.calibration.levels if _rank_name("nearer than", one.fpr) == counts.name]
    assert level.recovered > 0
    assert level.chance > 0.001, "chance explains these counts"
    chance = format_p_value(level.chance)
    expected = str(level.recovered), str(level.holdout_recovered), chance
    assert (counts.trained, counts.held_out, counts.chance) == expected
    text = Page(page(evaluation)).text
    assert "No training input was recovered by this attack beyond what chance explains" in text
    assert f"{level.recovered} by distance alone (chance gives as many with probability {chance[4:]};" in text
    assert f"held out: {level.holdout_recovered}; by chance {chance}" in text
    assert "No more of them are shown or stand out than chance explains" in text
    assert not any(row.name.startswith("recovered") for row in scores(evaluation)), "rank is not likeness"


@given(st.floats(0, 1))
def test_a_p_value_is_never_written_smaller_than_it_is(p_value):
    sign, bound = format_p_value(p_value).split()[1:]
    assert p_value < float(bound) if sign == "<" else float(bound) == pytest.approx(p_value, rel=0.06)
