"""What people call a study, and which one they mean."""

import difflib
from collections.abc import Collection, Sequence

from exhume.core.errors import ExhumeError

MAIN_PAPER = (
    "figure1", "figure2", "figure3", "figure4", "figure5", "figure6", "figure7", "figure8", "figure9", "table1",
    "figureS1", "figureS2", "figureS3", "figureS4", "figureS5", "figureS6",
)  # fmt: skip
"""Every figure and table of Loo et al. (2023), in its order."""
COLLECTIONS = ("max-margin",)
"""Studies that run others in one folder; ``all`` runs those others, and would do everything twice."""


def named(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the studies that are meant, each once: by name, ``fig2`` for short, ``paper`` and ``all`` for many.

    >>> named(["fig2", "Table-1", "figure2"], ["figure2", "table1"])
    ['figure2', 'table1']
    """
    by_spelling = {_plain(name): name for name in known}
    meant: list[str] = []
    for word in words:
        if _plain(word) == "all":
            meant += [name for name in known if name not in COLLECTIONS]
        elif _plain(word) == "paper":
            meant += [name for name in MAIN_PAPER if name in known]
        elif (name := by_spelling.get(_plain(word))) is not None:
            meant.append(name)
        else:
            close = difflib.get_close_matches(word, known, n=1)
            hint = f"did you mean {close[0]}" if close else f"there are {', '.join(known) or 'none'}"
            raise ExhumeError(f"There is no study {word!r}; {hint}.")
    return list(dict.fromkeys(meant))


def _plain(word: str) -> str:
    """Return a spelling that ``Fig. S2``, ``figs2`` and ``figureS2`` share.

    >>> _plain("Fig. S2"), _plain("figure-s2"), _plain("max-margin")
    ('figures2', 'figures2', 'maxmargin')
    """
    letters = "".join(c for c in word.lower() if c.isalnum())
    for short, long in (("fig", "figure"), ("tab", "table")):
        if letters.startswith(short) and not letters.startswith(long):
            return long + letters[len(short) :]
    return letters
