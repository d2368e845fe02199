"""Steps that commands share: names of attacks, and the examples to compare with."""

from pathlib import Path
from typing import Any

import pytest

import exhume
from exhume.auditing.run_folder import RunFolder
from exhume.cli.pipeline import TrainingRequest, load_comparison, load_examples, parse_names
from exhume.core.errors import ExhumeError

FILE = Path("arrays.npz")


def test_names_may_be_repeated_or_separated_by_commas() -> None:
    assert parse_names(["a,b", " c"]) == ["a", "b", "c"]
    assert parse_names(["auto"]) == parse_names(None) == []
    with pytest.raises(ExhumeError, match="not both"):
        parse_names(["auto,a"])


def test_requests_are_equal_if_their_settings_are() -> None:
    first, second = (
        TrainingRequest(data={"name": "digits", "data_dir": Path("x")}, model=exhume.MLP(width=width)).describe()
        for width in (8, 16)
    )
    assert first != second
    assert first["data"] == second["data"]


def test_examples_come_from_the_place_that_was_named(trained: Path, tmp_path: Path) -> None:
    view = RunFolder(trained).load_victim().view()
    data = RunFolder(trained).load_data()
    assert load_examples(view, trained, None, None, None) == data
    assert load_examples(view, None, None, None, None) is None
    data.save(tmp_path / "saved.safetensors")
    assert load_examples(view, trained, tmp_path / "saved.safetensors", None, None) == data
    assert load_comparison(trained) == data


@pytest.mark.parametrize(
    "places", [(Path("run"), None, FILE, None), (None, FILE, FILE, None), (None, None, None, FILE)]
)
def test_places_that_do_not_go_together_are_refused(places: tuple[Any, ...], trained: Path) -> None:
    view = RunFolder(trained).load_victim().view()
    with pytest.raises(ExhumeError, match="--train-data"):
        load_examples(view, *places)
