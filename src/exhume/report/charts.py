"""Figures as part of the page, in the colours of its theme."""

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
"""What each colour of the figures is called in the page's style, and what it is in the dark."""


def chart(name: str, evaluation: Evaluation, *, label: str, prefix: str) -> Markup | None:
    """Return a figure as an ``svg`` element that follows the page's light and dark; None when it has no material.

    Args:
        name: of the figure.
        evaluation: what to draw.
        label: what the figure shows, for those who do not see it.
        prefix: keeps the names inside apart from those of other figures of the page.
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
    # The label is the only part that data could speak through.
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">').format(size.group(1), label) + Markup(inside)
