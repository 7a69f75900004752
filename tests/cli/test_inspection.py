"""`mtlscale inspect`: what a file would be, which columns are suspicious, and the experiment file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import mtlscale, refused
from image_sets import picture, save

from mtlscale.config import load_experiment
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution.preparing.prepare import prepare

ROWS = 120


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ash = rng.normal(5, 2, ROWS)
    return pd.DataFrame(
        {
            "number": np.arange(ROWS) + 7,
            "bottle": [f"b{row:04d}" for row in range(ROWS)],
            "ash": ash,
            "ash again": ash,
            "always": 1,
            "soil": rng.choice(["clay", "sand"], ROWS),
            "leak": rng.permutation(ROWS),
            "alcohol": rng.normal(12, 1, ROWS),
            "grower": rng.choice(["anna", "ben", "cleo"], ROWS),
        }
    ).assign(leak=lambda f: f["grower"].str[0])


@pytest.fixture
def wine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(tmp_path)
    frame().to_csv("wine.csv", index=False)
    return tmp_path / "wine.csv"


def lines(text: str) -> dict[str, str]:
    """Return column -> its line of the table."""
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith(("target", "input", "left out"))]
    return {row.split("  ", 1)[1].strip().split("  ")[0]: row for row in rows}


def test_inputs_targets_and_suspicious_columns_with_reasons(wine: Path) -> None:
    done = mtlscale("inspect", wine.name, "--targets", "grower,alcohol")
    assert done.code == 0, done.stderr
    shown = lines(done.stdout)
    for column, why in {
        "number": "left out .*counts the rows",
        "bottle": "left out .*seems to name the rows: 120 different texts in 120 rows",
        "ash again": "left out .*the same as 'ash'",
        "always": "left out .*constant in training",
        "leak": "left out .*gives target 'grower' away without an error",
        "alcohol": "target .*regression .*numbers with fractions",
        "grower": "target .*class .*3 different texts",
        "soil": "input .*category",
    }.items():
        role, _, reason = why.partition(" .*")
        assert role in shown[column] and all(part in shown[column] for part in reason.split(" .*")), shown[column]
    assert "splits: train 77, val 19, test 24" in done.stdout
    assert "to write the experiment file: mtlscale inspect wine.csv --targets grower,alcohol --write wine.yaml\n" in (
        done.stdout
    )


def test_the_written_file_runs_on_what_was_shown(wine: Path) -> None:
    done = mtlscale("inspect", "wine.csv", "--targets", "grower,alcohol:regression", "--write", "mine.yaml")
    assert "mine.yaml is written; next: mtlscale run mine.yaml" in done.stdout
    experiment = load_experiment(Path("mine.yaml"))
    assert {"stl", "equal", "uncertainty", "getmtl", "constant", "linear"} <= {m.label for m in experiment.methods}
    assert experiment.model.encoder.name == "mlp"
    dataset = experiment.datasets[0]
    assert dataset.options["features"] == ["ash", "soil"] and dataset.label == "wine"
    data = load_prepared(prepare(dataset.name, dataset.options, dataset.source, Path("home")))
    assert data.manifest.counts["grower"] == {"train": 77, "val": 19, "test": 24}
    assert "the file exists; choose another name or pass --force" in refused(
        "inspect", "wine.csv", "--write", "mine.yaml"
    )
    assert mtlscale("inspect", "wine.csv", "--targets", "grower", "--write", "mine.yaml", "--force").code == 0
    assert [m.label for m in load_experiment(Path("mine.yaml")).methods] == [
        "stl",
        "constant",
        "linear",
        "forest",
        "boosting",
    ]


def test_a_column_of_many_categories_gets_vectors(wine: Path) -> None:
    frames = pd.concat([frame()] * 4)
    frames.assign(user=[f"user {row % 110}" for row in range(len(frames))]).to_csv("wine.csv", index=False)
    done = mtlscale("inspect", "wine.csv", "--targets", "grower,alcohol", "--write", "ids.yaml")
    assert done.code == 0 and "110" in lines(done.stdout)["user"], done.stdout
    assert load_experiment(Path("ids.yaml")).model.encoder.name == "embedding_mlp"


def test_of_many_targets_no_trees_are_grown(wine: Path) -> None:
    many = {f"T{number}": frame()["alcohol"] * number for number in range(1, 102)}
    pd.concat([frame(), pd.DataFrame(many)], axis=1).to_csv("wine.csv", index=False)
    for targets, trees in (("T*", []), ("T1,T2", ["forest", "boosting"])):
        done = mtlscale("inspect", "wine.csv", "--targets", targets, "--write", "many.yaml", "--force")
        assert done.code == 0, done.stderr
        assert list(load_experiment(Path("many.yaml")).floors) == ["constant", "linear", *trees]


def test_options_go_into_the_file_and_change_the_split(wine: Path) -> None:
    done = mtlscale(
        "inspect", "wine.csv", "--targets", "alcohol,grower", "--option", "group=bottle", "--write", "g.yaml"
    )
    assert done.code == 0 and " group " in next(line for line in done.stdout.splitlines() if "bottle" in line)
    assert load_experiment(Path("g.yaml")).datasets[0].options["group"] == "bottle"


def test_without_targets_the_last_column_is_guessed(wine: Path) -> None:
    done = mtlscale("inspect", "wine.csv")
    assert "target" in lines(done.stdout)["grower"] and "warning: the target is guessed; name yours by" in done.stdout


def test_the_hint_repeats_targets_and_options_and_counts_columns_called_like_targets(wine: Path) -> None:
    numbers = {f"Y{step}": [row * (step + 4) % 11 / 7 for row in range(120)] for step in (1, 2)}
    frame().assign(**numbers).to_csv(wine, index=False)
    one = mtlscale("inspect", "wine.csv", "--targets", "Y2")
    assert "warning: 1 input is called like the targets (Y1); if it is one, too: --targets 'Y*'\n" in one.stdout
    given = mtlscale("inspect", "wine.csv", "--targets", "Y*", "--option", "test=0.3")
    assert "mtlscale inspect wine.csv --targets 'Y*' --option test=0.3 --write wine.yaml\n" in given.stdout


def test_bad_cells_are_warned_of_before_anything_is_prepared(wine: Path) -> None:
    frame().assign(ash=[*frame()["ash"][:-1].astype(str), "thick"]).to_csv("wine.csv", index=False)
    done = mtlscale("inspect", "wine.csv", "--targets", "grower")
    assert "warning: 1 cell or row cannot be used, the first: row 120 has 'thick' in ash, whose other" in done.stdout


def test_a_target_named_twice_a_sum_and_blanks_around_a_name_are_told(wine: Path) -> None:
    twice = frame().assign(again=frame()["alcohol"])
    total = pd.concat([twice, twice.tail(1).assign(soil="Grand Total")])
    total.rename(columns={"ash": " ash "}).to_csv(wine, index=False)
    done = mtlscale("inspect", "wine.csv", "--targets", "alcohol,again")
    assert "target 'again' is the same as 'alcohol' in every row: one task twice" in done.stdout
    assert "the last row has 'Grand Total' in 'soil': leave it out if it sums up the others" in done.stdout
    done = mtlscale("inspect", "wine.csv", "--targets", "ash")
    assert done.code == 2 and "no column 'ash'; did you mean ' ash ' (with blanks around it)?" in done.stderr


def test_a_folder_of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number in range(40):
        save(tmp_path / "pets" / ("cat" if number % 2 else "dog") / f"{number}.png", picture(rng, 12, 12))
    done = mtlscale("inspect", "pets", "--write", "pets.yaml")
    assert done.code == 0, done.stderr
    assert "40 samples, as data set image_folder" in done.stdout and "splits: train 26, val 6, test 8" in done.stdout
    dataset = load_experiment(Path("pets.yaml")).datasets[0]
    data = load_prepared(prepare(dataset.name, dataset.options, dataset.source, Path("home")))
    assert data.suite.tasks[0].classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["none.csv"], "none.csv does not exist; name a table"),
        (["wine.csv", "--targets", "growr"], "there is no column 'growr'; did you mean grower?"),
        (["wine.csv", "--targets", "grower:klass"], "target 'grower' is of kind 'klass'; choose auto, class"),
        (
            ["wine.csv", "--targets", "grower=class"],
            "no column 'grower=class'; a kind stands behind a colon: grower:class",
        ),
        (["wine.csv", "--targets", "grower,grower"], "--targets: 'grower' is there twice"),
        (["wine.csv", "--targets", " "], "--targets ' ': name the target columns"),
        (["wine.csv", "--write", "x.csv"], "--write x.csv: end its name with .yaml"),
        (["wine.csv", "--option", "grup=bottle"], "unknown option 'grup'; did you mean group or grouped?"),
        (["wine.csv", "--option", "targets={a: class}"], "--option targets: name target columns by --targets"),
        (["text.txt"], "text.txt is none of .csv, .tsv, .parquet, .arff"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], expected: str, wine: Path) -> None:
    Path("text.txt").write_text("nothing")
    assert expected in refused("inspect", *arguments)
    assert not list(Path().glob("*.yaml"))
