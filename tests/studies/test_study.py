from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

import exhume
from exhume.core.errors import ExhumeError
from exhume.core.storage import load_bundle, save_bundle
from exhume.studies import study
from exhume.studies.study import Study, StudyResult, StudyRun, read_result, slug


@dataclass(frozen=True, kw_only=True)
class Squares:
    numbers: tuple[int, ...] = (2, 3)


MEASURED: list[int] = []


def measure(settings: Squares, run: StudyRun) -> StudyResult:
    def square(number: int) -> dict[str, object]:
        MEASURED.append(number)
        if number > 10 and MEASURED.count(number) == 1:
            raise KeyboardInterrupt
        return {"square": number**2, "row": torch.full((2,), float(number))}

    cells = {n: run.cell(f"square/{n}", lambda n=n: square(n)) for n in settings.numbers}
    return StudyResult(
        numbers={str(n): cell["square"] for n, cell in cells.items()} | {"sum": sum(c["row"] for c in cells.values())},
        figures={"squares": Figure(figsize=(1, 1))},
        table=(("number", "square"), [(str(n), str(cell["square"])) for n, cell in cells.items()]),
        summary="Squares grow.",
    )


STUDY = Study(
    name="squares",
    shows="that squares grow",
    presets={"smoke": Squares(), "cpu": Squares(numbers=(2, 3, 4)), "gpu": Squares(numbers=(2, 11))},
    measure=measure,
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    MEASURED.clear()


def test_a_study_writes_numbers_and_figures(tmp_path: Path) -> None:
    STUDY.run("smoke", tmp_path, command="exhume reproduce squares")
    result = read_result(tmp_path)
    assert result["numbers"] == {"2": 4, "3": 9, "sum": [5.0, 5.0]}
    assert result["settings"] == {"numbers": [2, 3]}
    assert result["command"] == "exhume reproduce squares"
    assert {"squares.png", "squares.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_finished_cells_are_not_measured_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        STUDY.run("gpu", tmp_path)
    STUDY.run("gpu", tmp_path)
    assert MEASURED == [2, 11, 11]
    assert read_result(tmp_path)["numbers"]["sum"] == [13.0, 13.0]


def test_damaged_cells_and_cells_of_other_settings_are_measured_again(tmp_path: Path) -> None:
    STUDY.run("smoke", tmp_path)
    STUDY.run("cpu", tmp_path)
    assert MEASURED == [2, 3, 2, 3, 4]
    (tmp_path / "cells" / "square" / "3.safetensors").write_bytes(b"cut short")
    STUDY.run("cpu", tmp_path, seed=0)
    assert MEASURED[5:] == [3]
    STUDY.run("cpu", tmp_path, seed=1)
    assert MEASURED[6:] == [2, 3, 4]


def test_cells_record_their_version_and_are_valid_for_every_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "__version__", "0.0.1")
    STUDY.run("smoke", tmp_path)
    values, tensors = load_bundle(tmp_path / "cells" / "square" / "2.safetensors", "cell")
    assert values["exhume_version"] == "0.0.1"
    assert read_result(tmp_path)["cells"] == {"0.0.1": 2}
    assert read_result(tmp_path)["identity"] == values["identity"]
    values.pop("exhume_version")  # as in cells before versions were recorded
    save_bundle(tmp_path / "cells" / "square" / "2.safetensors", "cell", values, tensors)
    (tmp_path / "cells" / "square" / "3.safetensors").unlink()
    monkeypatch.undo()
    STUDY.run("smoke", tmp_path)
    assert MEASURED == [2, 3, 3], "a cell of another version is not measured again"
    result = read_result(tmp_path)
    assert result["cells"] == {"unrecorded": 1, exhume.__version__: 1}
    assert result["numbers"] == {"2": 4, "3": 9, "sum": [5.0, 5.0]}


def test_a_missing_preset_is_named(tmp_path: Path) -> None:
    alone = Study(name="alone", shows="little", presets={"smoke": Squares()}, measure=measure)
    with pytest.raises(ExhumeError, match="no preset gpu; there are smoke"):
        alone.run("gpu", tmp_path)


def test_file_names_are_plain() -> None:
    assert slug("DP-SGD ε=8") == "dp-sgd-8"
