"""Downloads, from a server on the loopback device."""

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from exhume.core.errors import DataError
from exhume.data import downloads, fetch, load
from exhume.data.cifar import PIXELS
from exhume.data.downloads import DOWNLOADS, Download
from exhume.data.known_sources import KNOWN_SOURCES, MNIST_FILES, FileSource


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which it is served; nothing else on this machine may answer."""
    monkeypatch.delenv("EXHUME_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "published"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def publish_mnist(folder: Path, address: str) -> tuple[Download, ...]:
    offered = []
    for file in MNIST_FILES:
        shape = (20, 28, 28) if "images" in file else (20,)
        body = b"".join(bytes([i]) * 784 for i in range(20)) if "images" in file else bytes(i % 10 for i in range(20))
        content = gzip.compress(bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body)
        (folder / f"{file}.gz").write_bytes(content)
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        offered.append(Download(url=f"{address}/{file}.gz", checksum=checksum))
    return tuple(offered)


def publish_cifar(folder: Path, address: str) -> tuple[Download, ...]:
    files = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, file in enumerate(files):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            content = b"".join(bytes([label]) + bytes([10 * number + label]) * PIXELS for label in range(10))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    checksum = f"md5:{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"
    return (Download(url=f"{address}/{path.name}", checksum=checksum, unpacks_to=files),)


def test_fetched_files_load(published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOWNLOADS, "mnist", publish_mnist(*published))
    reports: list[tuple[str, int, int]] = []
    folder = fetch("mnist", tmp_path / "data", lambda stage, done, total, note="": reports.append((stage, done, total)))
    assert folder == tmp_path / "data" / "mnist"
    assert len(load("mnist", size=10, data_dir=tmp_path / "data").train) == 10
    assert {stage for stage, _, _ in reports} == {f"fetch {file}.gz" for file in MNIST_FILES}
    assert all(0 <= done <= total for _, done, total in reports)


def test_an_archive_is_unpacked_and_loads(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DOWNLOADS, "cifar-10", publish_cifar(*published))
    fetch("cifar-10", tmp_path / "data")
    data = load("cifar-10", classes="animal-vehicle", data_dir=tmp_path / "data")
    assert len(data.train) == len(data.holdout) == 20


def test_existing_files_are_not_downloaded_again(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DOWNLOADS, "mnist", publish_mnist(*published))
    fetch("mnist", tmp_path / "data")
    for file in published[0].iterdir():
        file.unlink()
    reports: list[str] = []
    fetch("mnist", tmp_path / "data", lambda stage, done, total, note="": reports.append(stage))
    assert not reports


def test_a_file_copied_by_hand_is_checked_and_used(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (download,) = publish_cifar(*published)
    nowhere = Download(
        url=f"http://127.0.0.1:9/{download.file}", checksum=download.checksum, unpacks_to=download.unpacks_to
    )
    monkeypatch.setitem(DOWNLOADS, "cifar-10", (nowhere,))
    folder = tmp_path / "data" / "cifar-10"
    folder.mkdir(parents=True)
    (published[0] / download.file).rename(folder / download.file)
    fetch("cifar-10", tmp_path / "data")
    assert (folder / "test_batch.bin").is_file()


def test_the_environment_sets_the_download_folder(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DOWNLOADS, "mnist", publish_mnist(*published))
    assert fetch("mnist").is_relative_to(tmp_path / "cache")
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path / "mine"))
    assert fetch("mnist") == tmp_path / "mine" / "mnist"


def test_a_file_with_another_checksum_is_discarded(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DOWNLOADS, "mnist", publish_mnist(*published))
    (published[0] / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match="its checksum differs"):
        fetch("mnist", tmp_path / "data")
    assert not list((tmp_path / "data" / "mnist").iterdir())


def test_a_missing_network_is_one_sentence_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = Download(url="http://127.0.0.1:9/train.gz", checksum="md5:0")
    monkeypatch.setitem(DOWNLOADS, "mnist", (unreachable,))
    with pytest.raises(DataError, match=r"cannot be reached; .* copy the file into .*mnist") as caught:
        fetch("mnist", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_missing_on_the_server_is_reported(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DOWNLOADS, "mnist", (Download(url=f"{published[1]}/gone.gz", checksum="md5:0"),))
    with pytest.raises(DataError, match=r"cannot be downloaded .*404"):
        fetch("mnist", tmp_path)


def test_an_endless_download_is_stopped(
    published: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DOWNLOADS, "mnist", publish_mnist(*published))
    monkeypatch.setattr(downloads, "LARGEST_DOWNLOAD", 100)
    with pytest.raises(DataError, match="more than 100 bytes"):
        fetch("mnist", tmp_path / "data")
    assert not list((tmp_path / "data" / "mnist").iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(DataError, match="cannot be written to"):
        fetch("mnist", tmp_path / "data")


@pytest.mark.parametrize(("name", "message"), [("faces", "nothing to fetch"), ("imagenet", "choose from mnist")])
def test_only_known_downloads_are_fetched(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fetch(name)


def test_every_source_read_from_files_can_be_fetched_whole() -> None:
    filed = {name: known for name, known in KNOWN_SOURCES.items() if isinstance(known, FileSource)}
    assert filed.keys() == DOWNLOADS.keys()
    for name, known in filed.items():
        brought = {file for offer in DOWNLOADS[name] for file in offer.unpacks_to or (offer.file.removesuffix(".gz"),)}
        assert brought == {*known.files, *known.optional}
        assert all(offer.url.startswith("https://") for offer in DOWNLOADS[name])
        assert all(len(offer.checksum.rpartition(":")[2]) in (32, 64) for offer in DOWNLOADS[name])
