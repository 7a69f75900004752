"""What every data set keeps, one table over all that ship (`tests/support/data_sets.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from data_sets import DATA_SETS
from image_sets import IN_PROCESS, WITH_RAY, prepared_bytes
from in_process import prepare

from mtlscale.config import SPLITS, UserError, component, names
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest

ELSEWHERE = {"metaworld"}  # needs MuJoCo: tests/rl/test_metaworld.py
WITH_FILES = {name: entry for name, entry in DATA_SETS.items() if entry.files is not None}


def cases(**wanted: Any) -> Any:
    """Mark a test for the entries that have what it looks at."""
    chosen = [name for name, entry in DATA_SETS.items() if all(bool(getattr(entry, key)) for key in wanted)]
    return pytest.mark.parametrize("name", chosen)


def written(name: str, folder: Path) -> Path | None:
    """Return the files of an entry, in a folder of their set's name."""
    files = DATA_SETS[name].files
    return files.write(folder / set_of(name)) if files is not None else None


def set_of(name: str) -> str:
    return name.partition(",")[0]


def ready(name: str, source: Path | None, home: Path, skip_bad: bool = False, **options: Any) -> Path:
    """Prepare the set of an entry."""
    return prepare(set_of(name), {**DATA_SETS[name].options, **options}, source, home, skip_bad=skip_bad)


def refused(name: str, source: Path | None, home: Path, **options: Any) -> str:
    """Return the one line that the set is refused with; nothing is left behind."""
    with pytest.raises(UserError) as caught:
        ready(name, source, home, **options)
    assert "\n" not in str(caught.value)
    assert not list(home.rglob("manifest.json"))
    return str(caught.value)


def ids_of(folder: Path, split: str) -> list[str]:
    return [
        f"{stream} {id}" for stream in read_manifest(folder).suite.streams for id in read_ids(folder, split, stream)
    ]


def test_every_set_that_ships_has_an_entry() -> None:
    assert {set_of(name) for name in DATA_SETS} == set(names("datasets", plugins=False)) - ELSEWHERE
    assert {name for name in DATA_SETS if component("datasets", set_of(name)).needs_source} == WITH_FILES.keys()


@pytest.mark.parametrize("name", DATA_SETS)
def test_rows_are_counted_and_the_same_files_are_the_same_set(name: str, tmp_path: Path) -> None:
    folders = [ready(name, written(name, tmp_path / at), tmp_path / at / "home") for at in ("one", "other")]
    manifests = [read_manifest(folder) for folder in folders]
    assert manifests[0].fingerprint == manifests[1].fingerprint and manifests[0].suite == manifests[1].suite

    data = load_prepared(folders[0])
    counted = tuple(sum(map(len, data.splits[split].values())) for split in SPLITS)
    assert counted == DATA_SETS[name].counts
    for split in SPLITS:
        for stream, samples in data.splits[split].items():
            ids = read_ids(folders[0], split, stream)
            assert len(set(ids)) == len(ids) == len(samples)
            assert set(samples.targets) == set(data.suite.streams[stream])


@cases(redraw=True)
def test_other_splits_have_the_same_rows(name: str, tmp_path: Path) -> None:
    source, home = written(name, tmp_path), tmp_path / "home"
    one, other = (ready(name, source, home, **options) for options in ({}, DATA_SETS[name].redraw))
    rows = [{split: set(ids_of(folder, split)) for split in SPLITS} for folder in (one, other)]
    assert set().union(*rows[0].values()) == set().union(*rows[1].values())
    assert rows[0] != rows[1] and read_manifest(one).fingerprint != read_manifest(other).fingerprint


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_same_bytes_in_blocks_of_any_size(name: str, tmp_path: Path) -> None:
    source, options = written(name, tmp_path), dict(DATA_SETS[name].options)
    first, *others = (prepared_bytes(set_of(name), options, source, tmp_path / "out" / str(number), work)
                      for number, work in enumerate(IN_PROCESS[1:]))  # fmt: skip
    assert any(path.endswith(".parquet") for path in first)
    assert all(other == first for other in others)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
@cases(through_ray=True)
def test_ray_gives_the_bytes_of_this_process(name: str, tmp_path: Path) -> None:
    source, options = written(name, tmp_path), dict(DATA_SETS[name].options)
    first, *others = (prepared_bytes(set_of(name), options, source, tmp_path / "out" / str(number), work)
                      for number, work in enumerate(WITH_RAY))  # fmt: skip
    assert all(other == first for other in others)


@cases(packed=True)
def test_an_archive_is_read_as_its_folder(name: str, tmp_path: Path) -> None:
    entry, home = DATA_SETS[name], tmp_path / "home"
    assert entry.files is not None
    archive = entry.files.pack(tmp_path / "packed" / entry.packed)
    folder, packed = ready(name, written(name, tmp_path), home), ready(name, archive, home)
    assert folder != packed and read_manifest(folder).fingerprint == read_manifest(packed).fingerprint
    if entry.packed in component("datasets", set_of(name)).archives:  # type: ignore[attr-defined]
        assert ready(name, archive.parent, home) == packed


@pytest.mark.parametrize("name", DATA_SETS)
def test_an_option_that_it_has_not_is_one_line(name: str, tmp_path: Path) -> None:
    said = refused(name, written(name, tmp_path), tmp_path / "home", nonsense=1)
    assert said.startswith(f"{set_of(name)}: ") and "'nonsense'" in said


@pytest.mark.parametrize("name", WITH_FILES)
def test_an_empty_folder_and_none_are_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", tmp_path / "nowhere"):
        said = refused(name, source, tmp_path / "home")
        assert said.startswith(f"{set_of(name)}: ") and str(source) in said


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, entry in DATA_SETS.items() for path in entry.needed])
def test_a_missing_file_is_one_line_that_names_it(name: str, path: str, tmp_path: Path) -> None:
    source = written(name, tmp_path)
    assert source is not None
    (source / path).unlink()
    assert DATA_SETS[name].needed[path] in refused(name, source, tmp_path / "home")


@cases(damaged=True)
def test_a_damaged_file_is_named_and_may_be_skipped(name: str, tmp_path: Path) -> None:
    source, entry = written(name, tmp_path), DATA_SETS[name]
    assert source is not None
    (source / entry.damaged).write_bytes(b"nothing of the kind")
    said = refused(name, source, tmp_path / "home")
    assert Path(entry.damaged).name in said and "--skip-bad" in said
    manifest = read_manifest(ready(name, source, tmp_path / "home", skip_bad=True))
    assert manifest.notes["skipped"]["count"] == 1
