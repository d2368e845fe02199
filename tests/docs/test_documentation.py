"""The documentation is true: the site builds, the tutorial runs, every key, name and option is explained."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import torch

import exhume
from exhume.auditing import audit_to_json
from exhume.cli import main
from exhume.records import Audit, Outcome, Reconstruction

DOCS = Path(__file__).parents[2] / "docs"


def test_the_site_builds_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = pytest.importorskip("mkdocs.config", reason="mkdocs-material is not installed")
    from mkdocs.commands.build import build

    build(config.load_config(str(DOCS.parent / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    home = (tmp_path / "index.html").read_text()
    assert "Tutorial" in home
    fetched = re.findall(r"(?:src|href)=\"?(https?://[^\"\s>]+)", home)
    assert not [url for url in fetched if "squidfunk" not in url], "a page must not load anything from other sites"


def test_the_tutorial_runs_and_shows_what_it_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text()
    (script,) = re.findall(r"^```python title=\"train.py\"\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    Path("train.py").write_text(script)
    with torch.random.fork_rng():
        runpy.run_path("train.py", run_name="__main__")
    commands = re.findall(r"^exhume (audit .*)$", text.replace("\\\n", " "), flags=re.MULTILINE)
    assert len(commands) == 5
    printed = ""
    for command in commands:
        if "--defences" in command:  # attacks the network six times; tested with less elsewhere
            continue
        assert main([*shlex.split(command), "--budget=2"]) == (1 if "--fail-if" in command else 0), command
        printed += capsys.readouterr().out
    quoted = re.findall(r'^"((?:All )?\d+ [^"]+)"', text, flags=re.MULTILINE)
    assert len(quoted) == 2
    for sentence in quoted:  # counts may differ between machines by a few images
        pattern = re.sub(r"\d+", r"(\\d+)", re.escape(sentence)).replace(r"All\ ", r"(?:All|\d+ of) ")
        assert (match := re.search(pattern, printed)), sentence
        assert all(18 <= int(count) <= 20 for count in match.groups())
    assert "seed 7" in Path("audit-seed/report.html").read_text()
    assert Path("audit.xml").is_file()


def test_every_key_of_audit_json_is_explained() -> None:
    found = Reconstruction(
        inputs=torch.rand(1, 2), certified=torch.tensor([False]), confidence=torch.ones(1), outcome=Outcome.CONVERGED
    )
    keys = audit_to_json(Audit(evaluations={"spade": exhume.evaluate(found)}))
    explained = set(re.findall(r"`([a-z0-9_]+)`", (DOCS / "reference" / "audit-json.md").read_text()))
    derived = {prefix + key for prefix in ("holdout_", "relative_") for key in explained}
    assert keys.keys() <= explained | derived


def test_every_public_name_is_in_the_reference() -> None:
    reference = (DOCS / "reference" / "python.md").read_text()
    assert not [name for name in exhume.__all__ if not name.startswith("__") and f"`{name}" not in reference]


def test_every_option_of_the_audit_is_in_the_reference() -> None:
    import typer

    from exhume.cli import app

    command = typer.main.get_command(app).commands["audit"]  # type: ignore[attr-defined]
    options = {word for parameter in command.params for word in parameter.opts if word.startswith("--")}
    reference = (DOCS / "command-line.md").read_text()
    assert "--fail-if" in options
    assert not [word for word in options - {"--help"} if word not in reference]
