"""``exhume reproduce``: list studies, run them, and go on after one that cannot run."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from exhume import studies
from exhume.cli import main
from exhume.core.errors import ExhumeError
from exhume.studies.study import Study, StudyResult, StudyRun, read_result


@dataclass(frozen=True, kw_only=True)
class Squares:
    numbers: tuple[int, ...] = (2, 3)


def measure(settings: Squares, run: StudyRun) -> StudyResult:
    squares = {str(number): number**2 for number in settings.numbers}
    return StudyResult(numbers=squares, figures={}, summary="Squares grow.")


STUDY = Study(name="squares", shows="that squares grow", presets={"smoke": Squares()}, measure=measure)


def test_the_command_lists_corrects_and_runs_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(studies.STUDIES, "squares", STUDY)
    assert main(["reproduce"]) == 0
    assert "that squares grow" in capsys.readouterr().out
    assert main(["reproduce", "sqares"]) == 2
    assert "did you mean squares" in capsys.readouterr().err
    assert main(["reproduce", "squares", "--preset", "smoke", "--out", str(tmp_path)]) == 0
    assert "Squares grow." in capsys.readouterr().out
    assert "--preset smoke" in read_result(tmp_path / "squares")["command"]


def test_a_study_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(settings: Squares, run: StudyRun) -> StudyResult:
        raise ExhumeError("There are no squares here.")

    monkeypatch.setitem(studies.STUDIES, "none", Study(name="none", shows="", presets=STUDY.presets, measure=fail))
    monkeypatch.setitem(studies.STUDIES, "squares", STUDY)
    assert main(["reproduce", "none", "squares", "--preset", "smoke", "--json", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert list(json.loads(said.out)) == ["squares"]
    assert "exhume: 1 of 2 studies could not run. none: There are no squares here." in said.err


def test_the_recorded_command_can_be_run_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(studies.STUDIES, "squares", STUDY)
    out = tmp_path / "my $HOME; results"
    assert main(["reproduce", "squares", "--preset", "smoke", "--quiet", "--out", str(out)]) == 0
    words = shlex.split(read_result(out / "squares")["command"])
    assert words[:3] == ["exhume", "reproduce", "squares"]
    assert words[words.index("--out") + 1] == str(out)
