"""Somebody's own data, from the raw file to the leaderboard in at most three commands and without a line of Python.

`pytest -m slow -s tests/test_own_data.py` prints the leaderboards and how long everything takes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[1]
ATTRIBUTES = ("Smiling", "Male", "Young")
Command = Callable[..., str]
FLOORS = ("constant", "linear", "forest", "boosting")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs a command line in an empty folder, and counts it."""
    made: list[str] = []

    def run(*arguments: str | Path) -> str:
        made.append(" ".join(map(str, arguments)))
        assert len(made) <= 3, made
        started = time.perf_counter()
        environment = {**os.environ, "COLUMNS": "150", "PYTHONPATH": str(ROOT)}
        environment.pop("MTLSCALE_DATA", None)
        command = [sys.executable, "-m", "mtlscale.cli", *arguments[1:]] if arguments[0] == "mtlscale" else [*arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{made[-1]}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        print(f"\n$ {made[-1]}  ({time.perf_counter() - started:.0f} s)\n{done.stdout}")
        return done.stdout

    return run


def leaderboard(folder: Path, name: str) -> pd.DataFrame:
    table = pd.read_csv(folder / "outputs" / "experiments" / name / "leaderboard.csv")
    return table.set_index("method")


@pytest.mark.slow
@pytest.mark.ray
def test_the_commands_of_the_page(command: Command, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own_table.md").read_text(encoding="utf-8")
    write, inspect, run = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    program = write.split()[1:]
    command(sys.executable, ROOT / program[0], *program[1:])
    shown = command(*inspect.split())
    assert "regression" in shown and "train 114, val 28, test 36" in shown and "train 114, val 28, test 36" in page

    command(*run.split(), "--set", "seeds=[0]", "--set", "methods=[equal]")
    rows = leaderboard(tmp_path, "wine")
    assert set(rows.index) == {"equal", *FLOORS}
    grower, alcohol = rows["grower.accuracy"], rows["alcohol.rmse"]
    assert grower["equal"] > 90 > 60 > grower["constant"] and alcohol["equal"] < 0.8 < alcohol["constant"]


@pytest.mark.slow
@pytest.mark.ray
def test_the_notebook_of_the_page(command: Command, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own_table.md").read_text(encoding="utf-8")
    block = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "cells.py").write_text(f"{block}print(sorted(set(results.to_pandas()['task'])))\n", encoding="utf-8")
    assert "['alcohol', 'target']" in command(sys.executable, "cells.py")
    rows = leaderboard(tmp_path, "wines")
    assert set(rows.index) == {"stl", "equal", "pcgrad", *FLOORS}
    assert rows["target.accuracy"]["equal"] > 90 > 60 > rows["target.accuracy"]["constant"]


@pytest.mark.slow
@pytest.mark.ray
def test_six_regressions_on_molecules(command: Command, shared_data: Path, tmp_path: Path) -> None:
    raw = shared_data / "qm9" / "qm9_small.csv.gz"
    shown = command("mtlscale", "inspect", raw, "--targets", "mu,alpha,homo,lumo,gap,r2", "--write", "qm9.yaml")
    assert "seems to name the rows" in shown
    command("mtlscale", "run", "qm9.yaml", "--set", "seeds=[0]", "--set", "training.epochs=4")
    rows = leaderboard(tmp_path, "qm9")
    assert {"stl", "equal", "uncertainty", "pcgrad", "getmtl", *FLOORS[:2]} == set(rows.index)
    alpha = rows["alpha.rmse"]
    assert alpha["equal"] < 0.7 < 0.9 < alpha["constant"]


@pytest.mark.slow
@pytest.mark.ray
def test_molecules_as_graphs(command: Command, shared_data: Path, tmp_path: Path) -> None:
    raw = shared_data / "qm9" / "qm9_small.csv.gz"
    command("mtlscale", "run", "qm9_cpu", "--source", raw, "--set", "seeds=[0]",
            "--set", "training.epochs=4", "--set", "methods=[equal, uncertainty]",
            "--set", "baseline=equal")  # fmt: skip
    rows = leaderboard(tmp_path, "qm9_cpu")
    assert {"equal", "uncertainty", *FLOORS[:2]} == set(rows.index)
    alpha = rows["alpha.mae"]
    assert alpha["equal"] < 4 < 5.5 < alpha["constant"]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize(("name", "tasks"), [("tox21", 12), ("sider", 27)])
def test_assays_of_molecules(command: Command, shared_data: Path, tmp_path: Path, name: str, tasks: int) -> None:
    shown = command("mtlscale", "inspect", shared_data / "molecules" / f"{name}.csv.gz", "--write", f"{name}.yaml")
    assert "smiles" in shown and "2 different whole numbers" in shown
    written = yaml.safe_load((tmp_path / f"{name}.yaml").read_text())
    kinds = written["datasets"][0]["options"]["targets"].values()
    assert len(kinds) == tasks and set(kinds) == {"class"} and written["model"]["encoder"]["name"] == "mpnn"
    command("mtlscale", "run", f"{name}.yaml", "--set", "seeds=[0]", "--set", "training.epochs=3",
            "--set", "methods=[equal, uncertainty]", "--set", "baseline=equal")  # fmt: skip
    rows = leaderboard(tmp_path, name)
    assert set(rows.index) == {"equal", "uncertainty", *FLOORS[:2]}
    aurocs = rows[[column for column in rows if str(column).endswith(".auroc")]].mean(1)
    assert aurocs["linear"] > 60 > aurocs["constant"] and aurocs["equal"] > 52


@pytest.mark.slow
@pytest.mark.ray
def test_six_labels_of_music(command: Command, shared_data: Path, tmp_path: Path) -> None:
    raw = shared_data / "multilabel" / "emotions-train.arff.gz"
    labels = "amazed-suprised,happy-pleased,relaxing-calm,quiet-still,sad-lonely,angry-aggresive"
    command("mtlscale", "inspect", raw, "--targets", labels, "--write", "emotions.yaml")
    command("mtlscale", "run", "emotions.yaml", "--set", "seeds=[0]", "--set", "training.epochs=15")
    rows = leaderboard(tmp_path, "emotions")
    quiet = rows["quiet-still.auroc"]
    assert quiet["equal"] > 75 > 60 > quiet["constant"]


@pytest.mark.slow
@pytest.mark.ray
def test_two_targets_of_the_census(command: Command, shared_data: Path, tmp_path: Path) -> None:
    raw = shared_data / "census_income" / "census-income.test.gz"
    command("cp", raw, "census.csv.gz")
    options = ("--option", "header=false", "--option", "weight='25'")
    shown = command("mtlscale", "inspect", "census.csv.gz", *options, "--targets", "42,8", "--write", "census.yaml")
    assert "99,762 samples" in shown
    command("mtlscale", "run", "census.yaml", "--set", "seeds=[0]", "--set", "training.epochs=2",
            "--set", "methods=[stl, equal, uncertainty]")  # fmt: skip
    rows = leaderboard(tmp_path, "census")
    income = rows["42.auroc"]
    assert income["equal"] > 90 > 60 > income["constant"]


@pytest.mark.slow
@pytest.mark.ray
def test_films_liked_by_the_ids_of_users_and_films(command: Command, shared_data: Path, tmp_path: Path) -> None:
    """A vector for each user and film knows what their attributes and one-hot columns do not."""
    raw = shared_data / "movielens100k"
    command("mtlscale", "run", "recommender_cpu", "--set", "seeds=[0]", "--set", "training.epochs=3",
            "--set", f"datasets.0.source={raw}", "--set", "methods=[stl, esmm, {name: pepnet, personal: [user, item]}]",
            "--set", "baseline=stl", "--set", "reference=stl")  # fmt: skip
    rows = leaderboard(tmp_path, "recommender_cpu")
    assert {"stl", "esmm", "pepnet", *FLOORS} == set(rows.index)
    liked = rows["like.auroc"]
    assert min(liked["esmm"], liked["pepnet"]) > 74 > 60 > liked["constant"]
    assert rows["love.gauroc"]["esmm"] > 65


@pytest.mark.slow
@pytest.mark.ray
def test_two_hundred_pictures_in_a_folder(command: Command, shared_data: Path, tmp_path: Path) -> None:
    faces = tmp_path / "faces"
    faces.mkdir()
    write_faces(shared_data / "celeba", faces, 200)
    shown = command("mtlscale", "inspect", "faces", "--option", "size=32", "--write", "faces.yaml")
    assert "200 samples" in shown and "train 128" in shown
    command("mtlscale", "run", "faces.yaml", "--set", "seeds=[0]", "--set", "training.epochs=10",
            "--set", "methods=[stl, equal, uncertainty]")  # fmt: skip
    rows = leaderboard(tmp_path, "faces")
    assert set(rows.index) == {"stl", "equal", "uncertainty", "constant"}
    spec = yaml.safe_load((tmp_path / "faces.yaml").read_text())
    assert spec["datasets"][0]["options"]["targets"] == dict.fromkeys(ATTRIBUTES, "class")


def write_faces(source: Path, folder: Path, count: int) -> None:
    """Pictures of CelebA and a table of three attributes, as somebody might have them."""
    with zipfile.ZipFile(source / "celeba_annotations.zip") as lists:
        name = next(name for name in lists.namelist() if name.endswith("list_attr_celeba.txt"))
        _, header, *lines = lists.read(name).decode().split("\n")
    rows = ["file," + ",".join(ATTRIBUTES)]
    with zipfile.ZipFile(source / "img_align_celeba_89x109_10k.zip") as pictures:
        for line in lines[:count]:
            file, *values = line.split()
            value_of = dict(zip(header.split(), values, strict=True))
            rows.append(",".join([file, *(value_of[attribute] for attribute in ATTRIBUTES)]))
            with pictures.open(f"img_align_celeba/{file}") as raw, (folder / file).open("wb") as out:
                shutil.copyfileobj(raw, out)
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
