"""The binary version of CIFAR."""

import gzip
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError
from exhume.data.cifar import CIFAR_10, CIFAR_100, LABEL_BYTES, PIXELS, read_cifar, read_cifar_file


def records(classes: tuple[str, ...], labels: list[int], seed: int = 0) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (len(labels), PIXELS), generator=generator, dtype=torch.uint8).numpy()
    lead = bytes(LABEL_BYTES[classes] - 1)
    return b"".join(lead + bytes([label]) + row.tobytes() for label, row in zip(labels, pixels, strict=True))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cifar") / "data_batch_1.bin"


@pytest.mark.parametrize("classes", [CIFAR_10, CIFAR_100], ids=["cifar-10", "cifar-100"])
@pytest.mark.parametrize("packed", [False, True])
def test_records_are_read_plane_by_plane(path: Path, classes: tuple[str, ...], packed: bool) -> None:
    content = records(classes, [3, 0, 9])
    path.write_bytes(gzip.compress(content) if packed else content)
    read = read_cifar_file(path, classes, 10)
    assert read.labels.tolist() == [3, 0, 9]
    first = content[LABEL_BYTES[classes] :]
    # Red, green and blue planes, each row by row: the byte at [channel, row, column] stands at this place.
    assert int(read.inputs[0, 2, 5, 7]) == first[2 * 1024 + 5 * 32 + 7]


@settings(max_examples=40)
@given(labels=st.lists(st.integers(0, 9), min_size=1, max_size=3), packed=st.booleans(), data=st.data())
def test_a_cut_file_is_a_shorter_one_or_a_data_error(
    path: Path, labels: list[int], packed: bool, data: st.DataObject
) -> None:
    whole = records(CIFAR_10, labels)
    content = gzip.compress(whole, compresslevel=1) if packed else whole
    cut = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:cut])
    if not packed and cut and cut % (1 + PIXELS) == 0:
        assert read_cifar_file(path, CIFAR_10, 10).labels.tolist() == labels[: cut // (1 + PIXELS)]
    else:
        with pytest.raises(DataError):
            read_cifar_file(path, CIFAR_10, 10)


def test_a_label_outside_the_classes_means_another_kind_of_file(path: Path) -> None:
    path.write_bytes(records(CIFAR_10, [1, 10]))
    with pytest.raises(DataError, match="record 1 has label 10"):
        read_cifar_file(path, CIFAR_10, 10)


def test_more_records_than_the_official_file_are_refused_before_they_are_unpacked(path: Path) -> None:
    path.write_bytes(gzip.compress(bytes(100 * 2**20), compresslevel=1))
    with pytest.raises(DataError, match="more than the 10 records"):
        read_cifar_file(path, CIFAR_10, 10)


def test_training_batches_are_joined_in_order_and_the_test_batch_kept_apart(tmp_path: Path) -> None:
    files = {}
    for name, labels in (("data_batch_2.bin", [2]), ("data_batch_1.bin", [1]), ("test_batch.bin", [9])):
        files[name] = tmp_path / name
        files[name].write_bytes(records(CIFAR_10, labels))
    source = read_cifar(files, "cifar-10", CIFAR_10)
    assert source.train.labels.tolist() == [1, 2]
    assert source.test is not None
    assert source.test.labels.tolist() == [9]


def test_cifar_100_has_a_hundred_sorted_classes() -> None:
    assert len(set(CIFAR_100)) == 100
    assert list(CIFAR_100) == sorted(CIFAR_100)
