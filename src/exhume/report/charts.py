"""Embed figures in the page, in the colours of its theme."""

import re

from markupsafe import Markup

from exhume.records import Evaluation
from exhume.report import figures

THEME = {
    figures.INK: ("--ink", "#ece6dc"),
    figures.MUTED: ("--muted", "#a8a094"),
    figures.GRID: ("--grid", "#3b3732"),
    figures.TRAINED: ("--trained", "#f28b5b"),
    figures.HELD_OUT: ("--held-out", "#8db8d8"),
}
"""For each colour of the figures: its name in the style sheet, and its value in the dark theme."""


def embed_chart(name: str, evaluation: Evaluation, *, label: str, prefix: str) -> Markup | None:
    """Return a figure as an ``svg`` element that follows the page's light and dark; None when it has no material.

    Args:
        name: name of the figure.
        evaluation: the evaluation to draw.
        label: description of the figure for screen readers.
        prefix: prefix of the identifiers inside, unique on the page.
    """
    drawn = figures.FIGURES[name](evaluation)
    if drawn is None:
        return None
    svg = figures.render(drawn, "svg").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for light, (variable, _) in THEME.items():
        svg = svg.replace(light, f"var({variable})")
    size = re.search(r'viewBox="([^"]+)"', svg)
    assert size is not None
    inside = svg[svg.index(">") + 1 :]
    # The label is the only part that can contain text from the data, so it is escaped.
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">').format(size.group(1), label) + Markup(inside)
