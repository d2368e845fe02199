"""The list of studies: names, one-line descriptions and modules, readable without importing any of the studies."""

import importlib
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from exhume.core.errors import ExhumeError
from exhume.core.settings_from_text import suggest

if TYPE_CHECKING:
    from exhume.studies.study import Study

Preset = Literal["smoke", "cpu", "gpu", "paper"]
"""How much of a study to run: seconds, to see that it runs; minutes on a laptop; minutes on a GPU; the full setting of
the paper."""

_LOO = "Loo et al. 2023"
_CURVES, _DISTANCE = "loo2023.figures2_4_5", "loo2023.figure3"
_FINAL_WEIGHTS = "buzaglo2023.studies"
_BY_DYNAMICS = "reconstruction curves by size and width, standard and linearised"
_BY_STOPPING = "reconstruction curves after full training and after early stopping"
_BY_CLASSES = "reconstruction curves of networks with two classes and with ten"
_TABLE: dict[str, tuple[str, str]] = {
    "figure1": ("loo2023.figure1", f"reconstructions beside the nearest training images ({_LOO}, Figure 1)"),
    "figure2": (_CURVES, f"{_BY_DYNAMICS} ({_LOO}, Figure 2)"),
    "figure3": (_DISTANCE, f"reconstruction error against the kernel's change in training ({_LOO}, Figure 3)"),
    "figure4": (_CURVES, f"{_BY_STOPPING} ({_LOO}, Figure 4)"),
    "figure5": (_CURVES, f"{_BY_CLASSES} ({_LOO}, Figure 5)"),
    "figure6": (
        "loo2023.figure6",
        f"20 images reconstructed from a network trained on 500, and what they teach ({_LOO}, Figure 6)",
    ),
    "figure7": (
        "loo2023.figure7",
        f"test accuracy after distilling ever larger sets to 20 images ({_LOO}, Figure 7)",
    ),
    "figure8": (
        "loo2023.figure8",
        f"original images that attacks recover after training on distilled ones ({_LOO}, Figure 8)",
    ),
    "figure9": ("loo2023.figure9", f"distilled images beside the nearest training images ({_LOO}, Figure 9)"),
    "table1": (
        "loo2023.table1",
        f"test accuracy after training on distilled images, at finite and infinite width ({_LOO}, Table 1)",
    ),
    "figureS1": ("loo2023.figure_s1", f"what knowing the initial weights adds to the final ones ({_LOO}, Figure S1)"),
    "figureS2": (_DISTANCE, f"reconstruction error against the kernel's change, ten classes ({_LOO}, Figure S2)"),
    "figureS3": (_CURVES, f"{_BY_DYNAMICS}, at every size ({_LOO}, Figure S3)"),
    "figureS4": (
        "loo2023.figure8",
        f"original images recovered after training on distilled ones, at every size ({_LOO}, Figure S4)",
    ),
    "figureS5": (_CURVES, f"{_BY_STOPPING}, at every size ({_LOO}, Figure S5)"),
    "figureS6": (_CURVES, f"{_BY_CLASSES}, at every size ({_LOO}, Figure S6)"),
    "theirs-and-ours": (
        "ours.theirs_and_ours",
        "reconstruction curves of the paper's recipe and of our attacks, on the same networks",
    ),
    "certificate-map": (
        "ours.certificate_map",
        "where exact recovery works, over units per example and examples per input value",
    ),
    "feature-span": (
        "ours.feature_span",
        "what the final weights of a convolutional network identify: number of images, and span of their features",
    ),
    "defences": ("ours.defences", "what defences cost in accuracy, and what every applicable attack still recovers"),
    "max-margin": (_FINAL_WEIGHTS, "what final weights alone reveal: all studies named max-margin-…"),
    "max-margin-weight-decay": (_FINAL_WEIGHTS, "recovered images against weight decay"),
    "max-margin-decay-binary": (
        _FINAL_WEIGHTS,
        "weight decay on two classes of CIFAR-10, with all layers weighted equally as in the papers, and by default",
    ),
    "max-margin-smoothness": (_FINAL_WEIGHTS, "what smooth candidates add, on two classes of CIFAR-10"),
    "max-margin-labels": (
        _FINAL_WEIGHTS,
        "free labels against balanced ones, all rival classes against the nearest, on small CIFAR-10 networks",
    ),
    "max-margin-exact": (
        _FINAL_WEIGHTS,
        "images recovered exactly, where the edges of units meet, from training sets of ten",
    ),
    "max-margin-exact-size": (
        _FINAL_WEIGHTS,
        "images recovered exactly and certified, where edges meet, against the size of the training set",
    ),
    "max-margin-exact-map": (
        _FINAL_WEIGHTS,
        "images recovered exactly and certified, where edges meet, over training set size and units per image",
    ),
    "max-margin-choice": (
        _FINAL_WEIGHTS,
        "settings chosen by the residual, and by an oracle that sees the training images",
    ),
    "max-margin-classes": (_FINAL_WEIGHTS, "two, five and ten classes, at the same number of images"),
    "max-margin-width": (_FINAL_WEIGHTS, "recovered images against units per layer"),
    "max-margin-depth": (_FINAL_WEIGHTS, "recovered images against the number of hidden layers"),
    "max-margin-loss": (_FINAL_WEIGHTS, "regression and classification, with weight decay and without"),
    "max-margin-size": (_FINAL_WEIGHTS, "recovered images against the size of the training set"),
    "max-margin-architecture": (_FINAL_WEIGHTS, "dense against convolutional networks"),
    "max-margin-control": (_FINAL_WEIGHTS, "what the search adds to the span of the inputs, which is known before it"),
    "max-margin-cifar": (
        _FINAL_WEIGHTS,
        "the papers' networks on CIFAR-10: 2 × 250 vehicles and animals, 10 × 50 images",
    ),
    "uncertainty": (
        "runkel2024.uncertainty",
        "what the starting point of an attack is worth, and when an attacker can separate true from plausible "
        "reconstructions (arXiv 2412.08544)",
    ),
}
"""Module (below ``exhume.studies``) and one-line description of every study, in the order of the papers."""
MAIN_PAPER = tuple(name for name in _TABLE if name.startswith(("figure", "table")))
"""Every figure and table of Loo et al. (2023), in its order."""
COLLECTIONS = ("max-margin",)
"""Studies that run others in one folder. ``all`` leaves them out, since it runs those others anyway."""


class Catalogue(MutableMapping[str, "Study[Any]"]):
    """Every study by name. The module of a study is imported when the study is first read."""

    def __init__(self) -> None:
        """Know the names, and load nothing."""
        self._loaded: dict[str, Study[Any]] = {}
        self._names = dict.fromkeys(_TABLE)

    def describe(self, name: str) -> str:
        """Return the one-line description of a study without importing it."""
        return self._loaded[name].shows if name in self._loaded else _TABLE[name][1]

    def __getitem__(self, name: str) -> "Study[Any]":
        """Import the study's module if needed, and return the study."""
        if name in self._names and name not in self._loaded:
            module = importlib.import_module(f"exhume.studies.{_TABLE[name][0]}")
            self._loaded |= {study.name: study for study in module.STUDIES if study.name not in self._loaded}
        return self._loaded[name]

    def __setitem__(self, name: str, study: "Study[Any]") -> None:
        """Add a study."""
        self._names[name] = None
        self._loaded[name] = study

    def __delitem__(self, name: str) -> None:
        """Remove a study."""
        del self._names[name]
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a study, without importing it."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of studies."""
        return len(self._names)


STUDIES = Catalogue()


def describe_study(name: str) -> str:
    """Return the description of a study of the table; empty for others."""
    return _TABLE[name][1] if name in _TABLE else ""


def choose_studies(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the studies that ``words`` name, each once: ``fig2`` for short, ``paper`` and ``all`` for many.

    >>> choose_studies(["fig2", "Table-1", "figure2"], ["figure2", "table1"])
    ['figure2', 'table1']
    """
    by_spelling = {_normalise(name): name for name in known}
    chosen: list[str] = []
    for word in words:
        if _normalise(word) == "all":
            chosen += [name for name in known if name not in COLLECTIONS]
        elif _normalise(word) == "paper":
            chosen += [name for name in MAIN_PAPER if name in known]
        elif (name := by_spelling.get(_normalise(word))) is not None:
            chosen.append(name)
        else:
            raise ExhumeError(f"There is no study {word!r}; {suggest(word, known)}.")
    return list(dict.fromkeys(chosen))


def _normalise(word: str) -> str:
    """Return a spelling that ``Fig. S2``, ``figs2`` and ``figureS2`` share.

    >>> _normalise("Fig. S2"), _normalise("figure-s2"), _normalise("max-margin")
    ('figures2', 'figures2', 'maxmargin')
    """
    letters = "".join(c for c in word.lower() if c.isalnum())
    for short, long in (("fig", "figure"), ("tab", "table")):
        if letters.startswith(short) and not letters.startswith(long):
            return long + letters[len(short) :]
    return letters
