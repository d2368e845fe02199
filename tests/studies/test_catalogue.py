"""The list of studies: complete, cheap to read, and tolerant of spellings."""

import subprocess
import sys

import pytest

from exhume.core.errors import ExhumeError
from exhume.studies import MAIN_PAPER, STUDIES, choose_studies
from exhume.studies.catalogue import Catalogue
from exhume.studies.study import Study

READ_NAMES = """
import sys
from exhume.studies import STUDIES
assert all(STUDIES.describe(name) for name in STUDIES)
print(sorted({"torch", "matplotlib", "scipy"} & set(sys.modules)))
"""


def test_names_and_descriptions_are_read_without_importing_a_study():
    done = subprocess.run([sys.executable, "-c", READ_NAMES], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", STUDIES)
def test_every_name_leads_to_its_study(name):
    study = STUDIES[name]
    assert study.name == name
    assert study.shows == STUDIES.describe(name)
    assert set(study.presets) >= {"smoke", "cpu", "gpu"}


def test_every_figure_of_the_paper_has_every_preset_and_comes_first():
    figures = [f"figure{number}" for number in range(1, 10)]
    assert [*figures, "table1", *(f"figureS{number}" for number in range(1, 7))] == list(MAIN_PAPER)
    assert list(STUDIES)[: len(MAIN_PAPER)] == list(MAIN_PAPER)
    for name in (*MAIN_PAPER, "theirs-and-ours"):
        assert set(STUDIES[name].presets) == {"smoke", "cpu", "gpu", "paper"}


def test_studies_can_be_added_and_removed():
    catalogue = Catalogue()
    before = len(catalogue)
    catalogue["mine"] = Study(name="mine", shows="something new", presets={}, measure=lambda settings, run: None)
    assert "mine" in catalogue
    assert catalogue.describe("mine") == "something new"
    assert len(catalogue) == before + 1
    del catalogue["mine"]
    assert "mine" not in catalogue
    with pytest.raises(KeyError):
        catalogue["mine"]


def test_studies_may_be_spelt_in_several_ways():
    spelt = choose_studies(["fig2", "Fig. S2", "figs3", "tab1"], STUDIES)
    assert spelt == ["figure2", "figureS2", "figureS3", "table1"]
    assert choose_studies(["paper"], STUDIES) == choose_studies(["Paper"], STUDIES) == list(MAIN_PAPER)
    assert choose_studies([], STUDIES) == []
    every = choose_studies(["all"], STUDIES)
    assert every == [name for name in STUDIES if name != "max-margin"], "max-margin only repeats its parts"


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(ExhumeError, match="did you mean figure2"):
        choose_studies(["figur2x"], {"figure2": 0})
