"""A folder of images with one sub-folder per class."""

import contextlib
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from exhume.core.errors import DataError
from exhume.data.image_folder import read_image_folder


def grey(folder: Path, name: str, size: tuple[int, int] = (4, 5)) -> np.ndarray:
    """Write a random grey PNG (width, height) and return its pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, size[::-1], dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name)
    return pixels


def test_grey_images_have_one_channel_and_classes_come_from_folders(tmp_path: Path) -> None:
    dog = grey(tmp_path / "dog", "1.png", (4, 5))[:, ::-1]
    Image.fromarray(dog).save(tmp_path / "dog" / "1.png")  # mirrored, so that the two differ
    cat = grey(tmp_path / "cat", "1.png")
    (tmp_path / "cat" / "notes.txt").write_text("ignored")
    (tmp_path / ".cache").mkdir()
    source = read_image_folder(tmp_path)
    assert source.classes == ("cat", "dog")
    assert source.bounds == (0.0, 1.0)
    assert source.train.labels.tolist() == [0, 1]
    assert (source.train.inputs[0, 0].numpy() == cat).all()
    assert (source.train.inputs[1, 0].numpy() == dog).all()


def test_one_colour_image_turns_all_images_into_colour(tmp_path: Path) -> None:
    cat = grey(tmp_path / "cat", "1.png")
    pixels = np.random.default_rng(1).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    (tmp_path / "dog").mkdir()
    Image.fromarray(pixels).save(tmp_path / "dog" / "1.bmp")
    inputs = read_image_folder(tmp_path).train.inputs
    assert inputs.shape == (2, 3, 5, 4)
    assert (inputs[0].numpy() == cat).all()
    assert (inputs[1].numpy() == pixels.transpose(2, 0, 1)).all()


def test_an_empty_folder_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="put the images of each class into a sub-folder"):
        read_image_folder(tmp_path)


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    grey(tmp_path / "cat", "1.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="dog holds no images"):
        read_image_folder(tmp_path)


def test_images_of_different_sizes_are_both_named(tmp_path: Path) -> None:
    grey(tmp_path / "cat", "1.png")
    grey(tmp_path / "dog", "2.png", (5, 5))
    with pytest.raises(DataError, match=r"2\.png has 5 x 5 pixels but .*1.png 4 x 5"):
        read_image_folder(tmp_path)


def test_sixteen_bits_are_refused_rather_than_clipped(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "cat" / "1.png")
    with pytest.raises(DataError, match="8 bits per channel"):
        read_image_folder(tmp_path)


@pytest.mark.parametrize("side", [5_000, 12_000, 100_000])
def test_an_image_bomb_is_refused_by_its_header(tmp_path: Path, side: int) -> None:
    """A few bytes that declare a huge PNG; Pillow itself warns from 9 000 a side and refuses from 13 000."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    (tmp_path / "cat").mkdir()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    (tmp_path / "cat" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    with pytest.raises(DataError, match="pixels"):
        read_image_folder(tmp_path)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow mentions odd tags before it gives up
@settings(max_examples=60)
@given(data=st.data(), suffix=st.sampled_from(["png", "bmp", "jpg", "gif", "tiff", "webp", "ppm"]))
def test_a_damaged_image_is_an_image_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, suffix: str
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    grey(folder / "cat", f"1.{suffix}", (16, 16))
    path = folder / "cat" / f"1.{suffix}"
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
            content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        assert len(read_image_folder(folder).train) == 1
