"""The packaged measurements of defences."""

import json
from pathlib import Path

import pytest

from exhume.report.bench import load_bench


def test_packaged_measurements_are_those_of_the_study():
    folder = Path(__file__).parents[2] / "docs" / "results" / "defences-digits"
    measured = json.loads((folder / "result.json").read_text())["numbers"]
    shown = load_bench()
    assert shown.size == measured["size"]
    assert {one.defence: (one.recovered, one.certified) for one in shown.measures} == {
        name: (one["recovered"], one["certified"]) for name, one in measured["defences"].items()
    }
    for one in shown.measures:
        assert one.accuracy == pytest.approx(measured["defences"][one.defence]["accuracy"], abs=0.051)
