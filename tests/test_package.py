"""The package: wheel and source archive are complete, install without the repository, and describe themselves."""

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

from exhume.version import __version__

REPOSITORY = Path(__file__).parent.parent
SOURCES = REPOSITORY / "src"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="hatchling, which builds the package, is not installed"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return folder / build("wheel", folder)


def build(kind: str, folder: Path) -> str:
    """Build the package as pip does, and return the name of the file."""
    code = f"from hatchling.build import build_{kind}; print(build_{kind}({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def read_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = [name for name in archive.namelist() if name.endswith("LICENSE")]
    kept = {path for path in (SOURCES / "exhume").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert packed == {path.relative_to(SOURCES).as_posix() for path in kept}
    assert "exhume/py.typed" in packed
    assert len(licences) == 1


def test_the_metadata_name_authors_versions_and_extras(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    assert metadata["Version"] == __version__
    assert metadata["Author"] == "exhume developers"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"private", "ray"} <= set(metadata.get_all("Provides-Extra") or [])
    assert any(value.endswith(":: 3.11") for value in metadata.get_all("Classifier") or [])
    assert f"version: {__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()


def test_the_description_has_no_link_that_needs_the_repository(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "exhume audit" in text
    targets = re.findall(r"\]\(([^)\s]+)", text)
    assert targets
    assert not [target for target in targets if not target.startswith("https://")]
    assert "](docs/" in (REPOSITORY / "README.md").read_text(), "the repository keeps its links"


def test_the_wheel_runs_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import sys, exhume.cli; print(exhume.__file__); sys.exit(exhume.cli.main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout
    assert __version__ in done.stdout


def test_the_source_archive_has_what_tests_and_documents_need(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "CHANGELOG.md", "constraints.txt", "Makefile",
        "mkdocs.yml", "package_readme.py", "pyproject.toml", "src/exhume/__init__.py", "tests/conftest.py",
        "docs/index.md", "examples/own_model.py", "benchmarks/all.py",
    }  # fmt: skip
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "carried", "out/"))]
