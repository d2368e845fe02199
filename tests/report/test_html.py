"""The page: self-contained, well formed, accessible, and safe against text in the data."""

import math
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.records import Applicability, Assessment, Audit, Outcome
from exhume.report.html import render_page, report
from exhume.report.scores import _rank_name, format_p_value, list_scores
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
    text = render_page(make_audit(shape, known=known))
    read = Page(text)
    assert read.tags.count("script") == 1
    assert "default-src 'none'" in text
    assert len(read.ids) == len(set(read.ids))
    assert all(image["alt"] for image in read.images)
    assert text.index("<h1>") < text.index("<h2")
    assert "http" not in text.replace("http-equiv", "")


def test_the_verdict_comes_first_and_each_certificate_is_described():
    read = Page(render_page(make_audit()))
    assert (
        "6 of 8 training images were recovered exactly. The attacker can prove 4 of them without the data." in read.text
    )
    assert read.text.count("certified: this image was in the training set, p < 1e-12") == 4
    assert read.text.count("certificate that matches none of the training images given") == 1
    assert "Give the audit all the training data" in read.text
    assert "Synthetic()" in read.text


@pytest.mark.parametrize("shape", [(1, 8, 8), (30,)])
def test_text_in_the_data_is_escaped(shape):
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
    text = render_page(evaluation)
    read = Page(text)
    assert "<img src=x" not in text
    assert text.count("<script") == 1
    assert "<script>alert" not in text
    assert read.text.count("onerror=alert(1)") >= 8


@settings(max_examples=6)
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1))
def test_any_name_gives_a_well_formed_page(name):
    text = render_page(make_audit(name=name, classes=(name, name), message=name, diagnostics={}))
    assert f"audit of {name}" in Page(text).text


def test_tables_are_shown_as_tables():
    text = render_page(make_audit((30,), features=tuple(f"column {place}" for place in range(30))))
    read = Page(text)
    assert "column 29" in read.text
    assert "training records were recovered" in read.text
    assert not any("png" in image["src"] for image in read.images)


@pytest.mark.parametrize("candidates", [0, 3])
def test_a_failed_attack_has_a_page_too(candidates):
    evaluation = make_audit(
        inputs=torch.full((candidates, 1, 8, 8), math.nan),
        certified=torch.zeros(candidates, dtype=torch.bool),
        confidence=torch.full((candidates,), math.nan),
        p_values=None,
        outcome=Outcome.DIVERGED,
        message="The objective diverged; lower the step size.",
        diagnostics={"loss": math.inf},
    )
    text = Page(render_page(evaluation)).text
    assert "No training input was recovered by this attack; that is no proof of safety." in text
    assert "lower the step size" in text
    assert "nan" not in text.replace("nan0", "")


def test_the_report_is_one_file_written_whole(tmp_path):
    report(make_audit(), tmp_path / "new" / "report.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
    assert (tmp_path / "new" / "report.html").read_text().endswith("</html>")


def test_counts_beside_a_verdict_of_nothing_are_compared_with_chance():
    inputs = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    blind = {"certified": torch.zeros(8, dtype=torch.bool), "confidence": torch.zeros(8), "p_values": None}
    evaluation = make_audit(inputs=inputs, **blind)
    counts = {row.name: row for row in list_scores(evaluation)}["nearer than 99% of held out"]
    [level] = [one for one in evaluation.calibration.levels if _rank_name("nearer than", one.fpr) == counts.name]
    assert level.recovered > 0
    assert level.chance > 0.001, "chance explains these counts"
    chance = format_p_value(level.chance)
    expected = str(level.recovered), str(level.holdout_recovered), chance
    assert (counts.trained, counts.held_out, counts.chance) == expected
    text = Page(render_page(evaluation)).text
    assert "No training input was recovered by this attack beyond what chance explains" in text
    assert f"{level.recovered} by distance alone (chance gives as many with probability {chance[4:]};" in text
    assert f"held out: {level.holdout_recovered}; by chance {chance}" in text
    assert "The verdict at the top gives the probability of these counts by chance" in text
    assert not any(row.name.startswith("recovered") for row in list_scores(evaluation)), "a rank is no similarity"


def test_the_page_states_what_was_given_and_how_far_an_attack_came():
    fate = "stopped at 18% when its share of the budget was spent"
    one = Assessment(attack="first", applies=Applicability.APPLIES, fate=fate)
    audit = Audit(evaluations={"first": make_audit()}, assessments=(one,), given={"final weights": True})
    text = Page(render_page(audit)).text
    assert "Stopped at 18% when its share of the budget was spent." in text
    assert "final weights" in text
    assert "Not recorded" not in text


def test_without_any_result_the_page_advises_only_what_was_not_given():
    refused = Assessment(attack="first", applies=Applicability.DOES_NOT, reasons=("It needs the loss.",))
    given = {"final weights": True, "initial weights": True, "architecture": "Sequential"}
    text = Page(render_page(Audit(evaluations={}, assessments=(refused,), given=given))).text
    assert "Not recorded" not in text
    assert "--initial" not in text
    assert "--training-size" in text
