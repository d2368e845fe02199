"""The page in a real browser: it loads in silence, sorts, filters, zooms, darkens, and lets nothing in."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.evaluation import evaluate
from exhume.records import Applicability, Assessment, Audit, Evaluation, Price, StartCandidate, StartEvidence
from exhume.report import report
from tests.report.synthetic_audits import make_audit

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("EXHUME_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; install one, or name it in EXHUME_CHROMIUM")

NASTY = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # Containers run as root, where Chromium's sandbox does not start.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


class Opened:
    """A page, and everything it complained about or asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def assert_silent(self) -> None:
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("data:", "file:"))] == []
        assert len([url for url in self.requests if url.startswith("file:")]) == 1


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """Write each report once, as drawing figures takes longer than looking at them."""
    folder = tmp_path_factory.mktemp("reports")
    written: list[tuple[Any, Path]] = []

    def write(found: Any) -> Path:
        for other, path in written:
            if other is found:
                return path
        written.append((found, folder / f"{len(written)}.html"))
        report(*written[-1])
        return written[-1][1]

    return write


@pytest.fixture
def opened(browser: Any, reports: Callable[[Any], Path]) -> Iterator[Any]:
    pages: list[Opened] = []

    def open_page(found: Any, **context: Any) -> Opened:
        pages.append(Opened(browser, reports(found), **context))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()


@cache
def audit() -> Audit:
    """Everything a page can show at once: two attacks, a searched start, prices, refusals."""
    first = make_audit(message="Found what there was.")
    second = make_audit(certified=torch.zeros(9, dtype=torch.bool), attack="Second(steps=3)", p_values=None)
    assessments = (
        Assessment(attack="first", applies=Applicability.APPLIES, fate="ran"),
        Assessment(attack="second", applies=Applicability.WITH_CAVEATS, reasons=("Features moved.",), fate="ran"),
        Assessment(attack="third", applies=Applicability.DOES_NOT, reasons=("There is a convolution.",)),
    )
    start = StartEvidence(
        candidates=(
            StartCandidate(name="seed 7", distance=0.1, correlation=0.99, log10_p=-300.0, rank=8, full_rank=65),
            StartCandidate(name="seed 9", distance=1.4, correlation=0.01, log10_p=-0.1),
        ),
        tried=100,
    )
    prices = (Price(change="as trained", certified=4, recovered=6, accuracy=0.9), Price(change="noise", certified=0))
    return Audit(evaluations={"second": second, "first": first}, assessments=assessments, start=start, prices=prices)


@cache
def table() -> Evaluation:
    return make_audit((30,), features=tuple(f"column {place}" for place in range(30)))


def shown(page: Any) -> list[str]:
    return [card.get_attribute("data-example") for card in page.locator(".card:visible, .record:visible").all()]


def test_the_page_loads_without_errors_or_requests(opened: Any) -> None:
    for found in (audit(), table(), make_audit(known=False), Audit(evaluations={})):
        page = opened(found)
        assert page.page.locator("h1").is_visible()
        page.assert_silent()


def test_the_verdict_comes_first(opened: Any) -> None:
    page = opened(audit()).page
    assert "6 of 8 training images were recovered exactly" in page.locator("h1").inner_text()
    text = page.locator("body").inner_text()
    for words in ("seed 7", "applies with caveats", "There is a convolution.", "measured on this network", "noise"):
        assert words in text, words
    assert page.locator("#null svg[role=img]").count() >= 2
    assert all(link.get_attribute("href").startswith("#") for link in page.locator("nav a").all())
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_filters_and_sorting_work_together(opened: Any) -> None:
    page = opened(audit()).page
    assert len(shown(page)) == 8
    page.select_option("#by-kind", "certified")
    assert len(shown(page)) == 4
    assert page.locator("#count").inner_text() == "4 of 8 shown"
    page.select_option("#by-kind", "")
    page.select_option("#by", "maxError-")
    errors = [float(card.get_attribute("data-max-error")) for card in page.locator(".card:visible").all()]
    assert errors == sorted(errors, reverse=True)
    page.select_option("#by", "example")
    assert shown(page) == sorted(shown(page), key=int)
    page.select_option("#by-label", "dog")
    assert all(int(number) % 2 == 1 for number in shown(page))
    page.fill("#find", "3")
    assert shown(page) == ["3"]
    page.fill("#find", "no such thing")
    assert shown(page) == []
    page.click("#clear")
    assert len(shown(page)) == 8


def test_one_attack_is_shown_at_once(opened: Any) -> None:
    page = opened(audit()).page
    assert {card.get_attribute("data-attack") for card in page.locator(".card:visible").all()} == {"first"}
    page.select_option("#by-attack", "second")
    assert {card.get_attribute("data-attack") for card in page.locator(".card:visible").all()} == {"second"}


def test_zoom_by_mouse_and_keyboard(opened: Any) -> None:
    page = opened(audit()).page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.locator(".card .open").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    zoom = page.locator("#zoom")
    assert zoom.is_visible()
    assert page.locator("#zoom-place").inner_text() == "2 of 8"
    assert page.locator("#zoom-sides figcaption").all_inner_texts() == [
        "recovered", "trained on", "difference × 8", "nearest held out",
    ]  # fmt: skip
    page.keyboard.press("ArrowRight")
    assert page.locator("#zoom-place").inner_text() == "3 of 8"
    page.keyboard.press("Escape")
    assert not zoom.is_visible()
    assert page.evaluate("document.activeElement.closest('.card') !== null"), "focus comes back to where it was"
    page.locator(".card .open").nth(4).click()
    assert zoom.is_visible()
    page.locator("#zoom-close").click()
    assert not zoom.is_visible()


def test_the_table_of_risks_sorts_by_its_headers(opened: Any) -> None:
    page = opened(audit()).page
    head = page.locator("#risks th[data-key=example] button")
    head.click()
    numbers = [int(row.get_attribute("data-example")) for row in page.locator("#risks tbody tr").all()]
    assert numbers == sorted(numbers)
    head.click()
    numbers = [int(row.get_attribute("data-example")) for row in page.locator("#risks tbody tr").all()]
    assert numbers == sorted(numbers, reverse=True)
    assert page.locator("#risks th[data-key=example]").get_attribute("aria-sort") == "descending"


def luminance(colour: str) -> float:
    """Return the relative luminance of ``rgb(r, g, b)``, as the accessibility guidelines have it."""
    parts = [float(part) / 255 for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page: Any, selector: str) -> float:
    ink = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).color")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(scheme: str, opened: Any) -> None:
    page = opened(audit(), color_scheme=scheme)
    background = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(background) < 0.1) == (scheme == "dark")
    for selector in ("h1", ".detail", ".quiet", ".proof", ".null", "nav a", "td.trained", ".lead"):
        assert contrast(page.page, selector) >= 4.5, f"{selector} is hard to read"
    chart = page.page.locator("#null svg text").first.evaluate("node => getComputedStyle(node).fill")
    assert (luminance(chart) > 0.18) == (scheme == "dark"), "figures follow too"
    page.page.click("#theme")
    assert (luminance(page.page.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.1) != (
        scheme == "dark"
    )
    page.assert_silent()


@pytest.mark.parametrize("shape", [(1, 8, 8), (30,)])
def test_the_page_fits_a_phone(shape: tuple[int, ...], opened: Any) -> None:
    found = replace(audit(), evaluations={"first": make_audit(shape)})
    page = opened(found, viewport={"width": 360, "height": 740}, has_touch=True)
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.page.locator("h1").is_visible()
    page.assert_silent()


def test_records_are_shown_as_tables(opened: Any) -> None:
    page = opened(table()).page
    assert page.locator(".record:visible").count() == page.locator(".record").count() >= 7
    assert page.locator(".record[data-place='0'] td").first.is_visible()
    page.select_option("#by-kind", "certified")
    assert page.locator(".record:visible").count() == 4


@pytest.mark.parametrize("shape", [(1, 8, 8), (30,)])
def test_text_in_the_data_runs_no_script(shape: tuple[int, ...], opened: Any) -> None:
    evaluation = make_audit(
        shape,
        name=NASTY,
        classes=(NASTY, NASTY + "2"),
        features=(NASTY,) * 30 if shape == (30,) else None,
        attack=NASTY,
        message=NASTY,
        diagnostics={NASTY: NASTY},
    )
    evaluation = replace(evaluation, given={NASTY: True, "training": {NASTY: [NASTY]}}, versions={NASTY: NASTY})
    assessment = Assessment(attack=NASTY, applies=Applicability.DOES_NOT, reasons=(NASTY,), fate=NASTY)
    start = StartEvidence(candidates=(StartCandidate(name=NASTY, distance=1.0, correlation=0.0, log10_p=0.0),), tried=2)
    price = Price(change=NASTY, certified=0, note=NASTY)
    found = Audit(
        evaluations={NASTY: evaluation},
        assessments=(assessment,),
        start=start,
        prices=(price,),
        notes={"command": NASTY},
    )
    page = opened(found)
    # Handlers of failed images run before the second frame after the load event.
    page.page.wait_for_load_state("load")
    page.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert "pwned" not in page.page.title() or page.page.title() == page.page.locator("h1").inner_text()
    assert page.page.evaluate("document.querySelectorAll('img[src=x], script').length") == 1
    if shape != (30,):
        page.page.locator(".card .open").first.click()
        assert page.page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    page.assert_silent()


def test_print_shows_collapsed_parts_and_no_controls(opened: Any) -> None:
    page = opened(table()).page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[open]").count() == page.locator("details").count()
    assert not page.locator("nav").is_visible()
    assert not page.locator("#tools").is_visible()


def test_print_fits_the_page(opened: Any) -> None:
    page = opened(audit(), viewport={"width": 720, "height": 1020}).page  # A4 without its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    tops = page.evaluate("[...document.querySelectorAll('.tiles li')].map(tile => tile.getBoundingClientRect().top)")
    assert len(set(tops)) == 1, "the tiles fill one row, and leave no empty cell"
    words = page.evaluate(
        """[...document.querySelectorAll('.card .word')].map(word => word.getBoundingClientRect().bottom
             - word.closest('.card').querySelector('.caption').getBoundingClientRect().top)"""
    )
    assert max(words) <= 1, "no word below an image reaches into the caption"


def test_the_page_works_without_scripts(opened: Any) -> None:
    page = opened(audit(), java_script_enabled=False).page
    assert page.locator("h1").is_visible()
    assert page.locator(".card").first.is_visible()
    assert not page.locator("#tools").is_visible()


def test_every_control_has_a_name(opened: Any) -> None:
    page = opened(audit()).page
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, select, input, a')].filter(control =>
             !(control.textContent.trim() || control.getAttribute('aria-label') || control.closest('label'))).length"""
    )
    assert nameless == 0
    assert page.evaluate("[...document.images].every(image => image.alt)")
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1


def test_an_evaluation_alone_has_a_page(opened: Any) -> None:
    evaluation = make_audit()
    page = opened(evaluate(evaluation.found))
    assert page.page.locator(".card").count() == 9
    page.assert_silent()


def test_no_column_is_cut_off_on_a_phone(opened: Any) -> None:
    page = opened(audit(), viewport={"width": 390, "height": 844}).page
    cells = "[...document.querySelectorAll('th, td')].filter((cell) => cell.offsetParent !== null)"
    assert page.evaluate(f"{cells}.filter((cell) => cell.getBoundingClientRect().right > innerWidth + 1).length") == 0


def test_dark_images_have_a_border_in_the_dark(opened: Any) -> None:
    page = opened(audit(), color_scheme="dark").page
    shadow = page.evaluate("getComputedStyle(document.querySelector('.triple img')).boxShadow")
    assert shadow != "none"
