"""Names and paths of data sets, and the folders that are searched."""

import gzip
import struct
from pathlib import Path

import pytest

from exhume.core.errors import DataError
from exhume.data import available, load
from exhume.data.cifar import PIXELS
from exhume.data.known_sources import KNOWN_SOURCES, MNIST_FILES, FileSource, locate, read_source, search_path


def write_mnist(folder: Path, count: int = 40, spelling: str = "-idx", packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in MNIST_FILES:
        shape = (count, 28, 28) if "images" in file else (count,)
        size = count * 784 if "images" in file else count
        body = bytes(i % 251 if "images" in file else i % 10 for i in range(size))
        content = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body
        name = file.replace("-idx", spelling) + (".gz" if packed else "")
        (folder / name).write_bytes(gzip.compress(content) if packed else content)


def write_cifar(folder: Path, count: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("data_batch_1.bin", "test_batch.bin"):
        (folder / file).write_bytes(b"".join(bytes([i % 10]) + bytes([i]) * PIXELS for i in range(count)))


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the machine's own data folder nor its download cache may answer for the test's."""
    monkeypatch.delenv("EXHUME_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("below", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize(("spelling", "packed"), [("-idx", True), (".idx", False)])
def test_mnist_is_found_in_its_usual_places(tmp_path: Path, below: str, spelling: str, packed: bool) -> None:
    write_mnist(tmp_path / below, spelling=spelling, packed=packed)
    data = load("mnist", classes="odd-even", size=10, data_dir=tmp_path)
    assert data.input_shape == (1, 28, 28)
    assert data.test is not None
    assert len(data.test) == 40


@pytest.mark.parametrize("below", ["cifar-10", "cifar-10-batches-bin", "."])
def test_cifar_is_found_in_its_usual_places(tmp_path: Path, below: str) -> None:
    write_cifar(tmp_path / below)
    data = load("cifar-10", classes="animal-vehicle", size=10, data_dir=tmp_path)
    assert data.input_shape == (3, 32, 32)
    assert data.test is not None
    # In the made-up files the class is the number of the record modulo ten: 0, 1, 8 and 9 are vehicles.
    assert data.test.labels[:10].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]


def test_the_argument_comes_before_the_environment_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path / "environment"))
    path = search_path(tmp_path / "argument")
    assert path[:2] == [tmp_path / "argument", tmp_path / "environment"]
    assert len(path) == 3
    known = KNOWN_SOURCES["mnist"]
    assert isinstance(known, FileSource)
    for folder in (path[2], path[1], path[0]):
        write_mnist(folder / "mnist")
        found = locate("mnist", known, tmp_path / "argument")
        assert {file.parent for file in found.values()} == {folder / "mnist"}


def test_an_incomplete_folder_gives_way_to_a_complete_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "part" / "mnist")
    (tmp_path / "part" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"part/mnist holds only a part of mnist; t10k-labels-idx1-ubyte \(or .gz\)"):
        load("mnist", data_dir=tmp_path / "part")
    write_mnist(tmp_path / "whole" / "mnist")
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path / "whole"))
    assert len(load("mnist", size=10, data_dir=tmp_path / "part").train) == 10


def test_a_missing_source_is_refused_with_the_searched_folders_and_advice(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"mnist is not in .*here.*; run 'exhume data fetch mnist', or put train-images"
    ):
        load("mnist", data_dir=tmp_path / "here")


def test_files_of_mnist_are_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    with pytest.raises(DataError, match="fashion-mnist is not in"):
        load("fashion-mnist", data_dir=tmp_path)
    write_mnist(tmp_path / "fashion-mnist")
    assert "ankle boot" in load("fashion-mnist", size=10, data_dir=tmp_path).classes


def test_available_lists_present_sources_and_their_folders(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar-10")
    by_name = {source.name: source for source in available(tmp_path)}
    assert by_name.keys() == KNOWN_SOURCES.keys()
    assert by_name["faces"].present
    assert by_name["faces"].location == "bundled"
    assert by_name["cifar-10"].present
    assert by_name["cifar-10"].location == str(tmp_path / "cifar-10")
    assert not by_name["mnist"].present
    assert by_name["mnist"].location == "run: exhume data fetch mnist"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Name a source or a path. Known sources are digits"),
        ("~nobody-of-this-name/data", "cannot be read"),
        ("minst", "Did you mean 'mnist'"),
        ("nothing/here.npz", "no file or folder of that name"),
        ("x" * 5_000, "cannot be read"),
        ("nul\0byte", "no file or folder"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_names(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_source(name)


def test_an_archive_must_be_unpacked_first(tmp_path: Path) -> None:
    (tmp_path / "images.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match="unpack an archive first"):
        read_source(tmp_path / "images.tar.gz")


@pytest.mark.parametrize("name", ["digits", "mine.npz"])
def test_a_label_column_is_valid_for_csv_files_only(name: str) -> None:
    with pytest.raises(DataError, match="Only CSV files have a label column"):
        read_source(name, label="target")
