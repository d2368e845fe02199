"""CSV files with a label column."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.csv_files import read_csv

GOOD = "age,kind,weight\n1,cat,2.5\n3,dog,2.5\n5,cat,-1e1\n"


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "pets.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_columns_are_standardised_and_the_label_column_set_apart(tmp_path: Path, separator: str, encoding: str) -> None:
    source = read_csv(write(tmp_path, GOOD.replace(",", separator), encoding), "kind")
    assert source.name == "pets"
    assert source.classes == ("cat", "dog")
    assert source.features == ("age", "weight")
    assert source.bounds is None
    assert source.train.labels.tolist() == [0, 1, 0]
    torch.testing.assert_close(source.train.inputs[:, 0], torch.tensor([-1.0, 0.0, 1.0]) * math.sqrt(1.5))


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        (GOOD, None, "Name the column"),
        (GOOD, "species", "no column 'species'; its columns are age, kind, weight"),
        ("", "kind", "no column"),
        ("age,kind\n", "kind", "no rows"),
        ("kind\ncat\n", "kind", "nothing to learn from"),
        ("age,age,kind\n1,2,cat\n", "kind", "'age' twice"),
        ("age,kind\n1,cat\n2\n", "kind", "line 3: 1 values where the header names 2"),
        ("age,kind\n1,cat\nold,dog\n", "kind", "line 3, column 'age': 'old' is not a number"),
        ("age,kind\n1,cat\n1_0,dog\n", "kind", "is not a number"),
        ("age,kind\n,cat\n", "kind", "value is missing"),
        ("age,kind\nnan,cat\n", "kind", "not a finite number"),
        ("age,kind\n1e999,cat\n", "kind", "not a finite number"),
        ("age,kind\n1, \n", "kind", "no label"),
        ('age,kind\n1,"cat\n', "kind", "not a readable CSV"),
        ("age,kind\n1,\0\n2," + "c" * 200_000 + "\n", "kind", "CSV"),
    ],
)
def test_bad_files_are_refused_with_the_reason(tmp_path: Path, text: str, label: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write(tmp_path, text), label)


def test_a_file_in_another_encoding_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not text in UTF-8"):
        read_csv(write(tmp_path, "größe,kind\n1,cat\n", "latin-1"), "kind")


@settings(max_examples=100)
@given(content=st.binary(max_size=120) | st.text(alphabet='a,;"\n\r\t1.-e', max_size=120).map(str.encode))
def test_any_bytes_are_a_table_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"a,b\n" + content)
    try:
        source = read_csv(path, "b")
    except DataError:
        return
    assert torch.isfinite(source.train.inputs).all()
