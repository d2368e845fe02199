"""Public names, documented code and links: all of them work."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import exhume

REPOSITORY = Path(__file__).parent.parent
DOCUMENTS = [REPOSITORY / "README.md"]
PROMISED = (
    "load", "train", "MLP", "ConvNet", "ResNet", "attacks", "evaluate", "report", "verdict", "AttackerView", "Dataset",
    "Split", "Victim", "Reconstruction", "Evaluation", "audit", "Audit", "Outcome", "load_weights", "ExhumeError",
    "DataError", "WeightsError", "RecordError", "Refusal", "distil", "KIP", "RKIP",
)  # fmt: skip


def test_promised_names_are_public() -> None:
    assert set(PROMISED) <= set(exhume.__all__)
    assert all(hasattr(exhume, name) for name in exhume.__all__)
    assert callable(exhume.report)
    assert {"GateCertificate", "WeightDifference"} <= set(exhume.attacks.__all__)


def test_a_view_accepts_no_training_data() -> None:
    fields = set(exhume.AttackerView.__dataclass_fields__)
    assert not fields & {"inputs", "images", "labels", "data", "dataset", "train", "holdout"}


def test_importing_exhume_imports_no_optional_package() -> None:
    heavy = ("torch", "numpy", "scipy", "sklearn", "skimage", "matplotlib", "requests", "ray", "opacus")
    for module in ("exhume", "exhume.cli"):
        probe = f"import {module}, sys; print([name for name in {heavy} if name in sys.modules])"
        loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
        assert loaded.strip() == "[]", f"import {module} loads {loaded}"


def test_a_function_may_share_its_name_with_a_package() -> None:
    from exhume.report.html import report

    assert exhume.report is report


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_documents_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(compile(block, document.name, "exec"), {})


def test_links_between_documents_lead_somewhere() -> None:
    documents = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for document in (*documents, *(REPOSITORY / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}, which is not there"


def test_every_command_in_the_readme_is_one() -> None:
    from exhume.cli.app import app

    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    used = re.findall(r"^exhume (\w+)", (REPOSITORY / "README.md").read_text(), flags=re.MULTILINE)
    assert set(used) <= known
    assert "make demo" in (REPOSITORY / "README.md").read_text()
    assert "make test" in (REPOSITORY / "README.md").read_text()


def test_constraints_cover_every_dependency() -> None:
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = (REPOSITORY / "pyproject.toml").read_text()
    needed = re.findall(r'^  "([A-Za-z0-9-]+)>=', project, flags=re.MULTILINE)
    assert {name.lower() for name in needed} <= pinned


def test_version_is_one() -> None:
    from importlib.metadata import version

    assert exhume.__version__ == version("exhume")
    assert json.dumps(exhume.__version__)
