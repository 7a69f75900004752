"""Places that options, variables and experiment files name: a folder is a folder, a storage is a URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import mtlscale

from mtlscale.config import UserError, load_experiment
from mtlscale.config.places import local_folder, storage_url, without_tilde
from mtlscale.records import Home


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder with another as the user's."""
    for name in ("MTLSCALE_HOME", "MTLSCALE_STORAGE", "MTLSCALE_DATA"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "user").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path / "work")


@pytest.mark.parametrize("text", ["~", "~/runs", "runs", "runs 100%", "ä#b", "a:b", "/abs/runs", "C:"])
def test_a_folder_is_what_it_says(text: str, tmp_path: Path) -> None:
    expected = {"~": tmp_path / "user", "~/runs": tmp_path / "user" / "runs"}.get(text, tmp_path / "work" / text)
    assert local_folder(text, "--home") == expected
    assert local_folder(Path(text), "--home") == expected


@pytest.mark.parametrize(
    "text", ["s3://bucket/runs", "s3:/bucket/runs", "gs://bucket", "hdfs://host/runs", "http://h/x"]
)
@pytest.mark.parametrize("setting", ["--home", "MTLSCALE_HOME"])
def test_a_url_is_no_folder(text: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTLSCALE_HOME", text)
    with pytest.raises(UserError, match=rf"^{setting} \S+ is a URL, .*; --storage takes s3://BUCKET/FOLDER$"):
        Home.at(Path(text) if setting == "--home" else None)
    assert list((tmp_path / "work").iterdir()) == []


def test_names_that_cannot_be_are_refused_with_the_mend(tmp_path: Path) -> None:
    for text, line in {
        "file:///mnt/runs": "--home file:///mnt/runs is a URL; name the folder itself, /mnt/runs",
        "runs 100%?": "--home runs 100%?: a ? ends the path of a database; name a folder without one",
        "~nobody-of-this-name/runs": "~nobody-of-this-name/runs: Could not determine home directory; "
        "write the path in full",
    }.items():
        with pytest.raises(UserError) as refused:
            local_folder(text, "--home")
        assert str(refused.value) == line


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("s3:/bucket/runs", "s3://bucket/runs"),
        ("s3:bucket", "s3://bucket"),
        ("s3://", "s3://BUCKET/FOLDER"),
        ("bucket/runs", "s3://bucket/runs or file:///bucket/runs"),
    ],
)
@pytest.mark.parametrize("setting", ["--storage", "MTLSCALE_STORAGE"])
def test_what_names_no_storage_is_refused(
    text: str, meant: str, setting: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MTLSCALE_STORAGE", text)
    with pytest.raises(UserError) as refused:
        Home.at(tmp_path, text if setting == "--storage" else None)
    assert str(refused.value) == f"{setting} {text} names no storage; write {meant}"


def test_storages_are_taken_as_they_are(tmp_path: Path) -> None:
    for text in ("s3://bucket/runs", "gs://b", "file:///mnt/x", "s3://key:secret@bucket/runs"):
        assert storage_url(text, "--storage") == text
    assert storage_url("~/shared", "--storage") == str(tmp_path / "user" / "shared")


def test_a_tilde_that_the_shell_left_is_expanded_everywhere(
    experiment_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    assert without_tilde("--output=~/x.md") == f"--output={user}/x.md"
    assert [without_tilde(text) for text in ("~x", "a~/b", "--set", "x=~/y")] == ["~x", "a~/b", "--set", "x=~/y"]
    for home in ("--home=~/runs", "~/runs"):
        done = mtlscale("status", *(["--home"] if home.startswith("~") else []), home)
        assert "~" not in done.stdout + done.stderr
    (user / "raw").mkdir()
    path = experiment_file(datasets="[{name: celeba, source: ~/raw}]", methods="[equal]")
    assert load_experiment(path).datasets[0].source == str(user / "raw")
    monkeypatch.setenv("MTLSCALE_DATA", "~/data")
    (user / "data" / "celeba").mkdir(parents=True)
    done = mtlscale("prepare", "celeba")
    assert f"{user}/data/celeba" in done.stderr
    assert list((tmp_path / "work").iterdir()) == []
