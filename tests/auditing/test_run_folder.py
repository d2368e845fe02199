"""Run folders stay free of incomplete and outdated files."""

from pathlib import Path

import pytest

from exhume.auditing.run_folder import RunFolder
from exhume.core.errors import ExhumeError, RecordError


def test_a_folder_that_nothing_is_written_to_is_removed_again(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "b").open():
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a").exists()
    with RunFolder(tmp_path / "a" / "b").open():
        (tmp_path / "a" / "b" / "note").write_text("kept")
    assert (tmp_path / "a" / "b" / "note").is_file()


def test_files_that_a_killed_command_had_begun_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".audit.json.abc123").write_text("{")
    (tmp_path / ".editorconfig.of.user").write_text("not ours")
    with RunFolder(tmp_path).open():
        assert [path.name for path in tmp_path.iterdir()] == [".editorconfig.of.user"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(ExhumeError, match=r"cannot be written .* choose another folder"),
        RunFolder(tmp_path / "file" / "below").open(),
    ):
        pass


def test_clearing_an_attack_leaves_network_and_data(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    stays = [folder.data, folder.victim, folder.training]
    goes = [folder.request, folder.reconstruction, folder.result, folder.audit, folder.report]
    for file in (*stays, *goes):
        file.write_text("{}")
    folder.figures.mkdir()
    folder.clear_attack()
    assert sorted(tmp_path.iterdir()) == sorted(stays)


def test_a_checkpoint_is_removed_with_its_empty_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for work in ("first", "second"):
        folder.checkpoint(work).parent.mkdir(exist_ok=True)
        folder.checkpoint(work).write_text("state")
    folder.remove_checkpoint("first")
    assert folder.checkpoint("second").is_file()
    folder.remove_checkpoint("second")
    assert not list(tmp_path.iterdir())
    folder.remove_checkpoint("second")


def test_missing_or_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.load_data() is None
    assert folder.load_training() is None
    with pytest.raises(RecordError, match="holds no trained network"):
        folder.load_victim()
    folder.victim.write_text("")
    folder.training.write_text("{")
    with pytest.raises(RecordError, match=r"training\.json is not the JSON"):
        folder.load_training()
