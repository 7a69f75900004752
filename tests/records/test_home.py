"""Folders of a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtlscale.records import new_folders


def test_folders_that_were_made_for_nothing_are_removed_and_no_others(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    with pytest.raises(KeyError), new_folders(before / "new" / "newer"):
        assert (before / "new" / "newer").is_dir()
        raise KeyError
    assert before.is_dir() and not list(before.iterdir())


def test_folders_that_something_was_written_to_stay(tmp_path: Path) -> None:
    with new_folders(tmp_path / "kept" / "inner"):
        pass
    assert (tmp_path / "kept" / "inner").is_dir()

    with pytest.raises(KeyError), new_folders(tmp_path / "used" / "inner"):
        (tmp_path / "used" / "note.txt").write_text("kept")
        raise KeyError
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["note.txt"]
