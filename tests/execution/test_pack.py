"""What a job takes along, and what it never does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import UserError, load_experiment
from mtlscale.execution.cluster.job_bundle import pack


def test_the_packed_experiment_has_the_runs_of_the_original(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment_file(seeds="[0, 1]")
    package = pack(str(path), ("training.epochs=7",))
    package.write(tmp_path / "job")
    there = load_experiment(tmp_path / "job" / package.file)
    here = load_experiment(path, ("training.epochs=7",))
    print_of = {"uneven": "f"}
    assert [r.run_id for r in there.runs(print_of)] == [r.run_id for r in here.runs(print_of)]
    assert there.name == here.name and there.training.epochs == 7
    files = [path for path in (tmp_path / "job").rglob("*.*") if path.suffix != ".pyc"]
    assert {path.name for path in files} == {"small.yaml", "uneven.py"}
    assert package.size == sum(path.stat().st_size for path in files)


def test_histories_results_and_hidden_files_stay_here(
    experiment_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    for name in (".git/config", "outputs/x", "raw/x", "keep/helper.txt", "__pycache__/a.pyc", ".env", "table.csv"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("x")
    (mine / "link").symlink_to(tmp_path)
    monkeypatch.setenv("MTLSCALE_DATA", str(mine / "raw"))
    package = pack(str(experiment_file()), include=[mine])
    assert {name for name in package.copied if name.startswith("mine")} == {"mine/keep/helper.txt", "mine/table.csv"}
    assert package.links == (mine / "link",)
    for never in (".git", "outputs", "raw"):
        with pytest.raises(UserError, match="never packed"):
            pack(str(experiment_file()), include=[mine / never])


def test_a_package_over_the_limit_names_its_biggest_files(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "extra"
    folder.mkdir()
    for name, kib in (("small.bin", 10), ("big.bin", 900), ("bigger.bin", 1200), ("third.bin", 100)):
        (folder / name).write_bytes(b"0" * kib * 1024)
    package = pack(str(experiment_file()), include=[folder])
    package.check(3)
    with pytest.raises(UserError) as caught:
        package.check(1)
    said = str(caught.value)
    assert "extra/bigger.bin 1.2 MiB, extra/big.bin 900.0 KiB, extra/third.bin 100.0 KiB" in said
    assert "small.bin" not in said and "2.2 MiB, over the limit of 1 MiB" in said


def test_with_code_ships_the_packages_alone(experiment_file: Callable[..., Path]) -> None:
    package = pack(str(experiment_file()), with_code=True)
    assert {"mtlscale/cli/__init__.py", "pipelines/image/digits.py"} <= set(package.copied)
    assert {name.split("/")[0] for name in package.copied} == {"mtlscale", "pipelines", "plugins"}
    assert not [name for name in package.copied if name.endswith(".pyc") or ".git" in name]


def test_a_folder_of_the_users_does_not_mix_with_the_packages(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    mine = tmp_path / "pipelines"
    mine.mkdir()
    (mine / "__init__.py").write_text("")
    assert "pipelines/__init__.py" in pack(str(experiment_file()), include=[mine]).copied
    with pytest.raises(UserError, match="--include brings another pipelines, which --with-code takes along"):
        pack(str(experiment_file()), include=[mine], with_code=True)
