"""What a run says of its data before it starts: leaks, cuts, guessed features, floors that do not apply."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import mtlscale
from listening import Listening
from rich.console import Console

from mtlscale.cli.output.dry_run import show
from mtlscale.config import UserError, load_experiment, load_plugin, read_outline
from mtlscale.data.quality_warnings import left_out
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.rehearsal.dry_run import sketch
from mtlscale.execution.rehearsal.forecast import Forecasts
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Home
from mtlscale.report.tables.planned import planned_rows

ENCODER = "model: {encoder: {name: word_char, dimensions: 4}}\n"


def told(file: Path, home: Path) -> list[str]:
    listener = Listening()
    prepare_data(load_experiment(file), Home(home), None, False, Sinks(listener))
    return listener.notes


@pytest.fixture
def tags(tmp_path: Path) -> Path:
    """An experiment on words with tags; the first test sentence has 40 words, the second stands in training."""
    long = [(f"w{number}", "N") for number in range(40)]
    short = [[(f"v{number}", "V"), ("he", "N")] for number in range(30)]
    for part, sentences in {"train": short, "test": [long, short[0]]}.items():
        text = "\n\n".join("\n".join(f"{word} {tag}" for word, tag in sentence) for sentence in sentences)
        (tmp_path / f"{part}.conll").write_text(text + "\n")
    file = tmp_path / "tags.yaml"
    file.write_text(
        "datasets: [{name: conll, label: mine, options: {tasks: {pos: {train: train.conll, test: test.conll}}, "
        f"length: 16}}}}]\nmethods: [stl, equal]\n{ENCODER}"
    )
    return file


def test_tables_say_which_columns_they_took_and_which_test_rows_training_has(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"size": rng.normal(size=40), "age": rng.normal(size=40)})
    long = pd.concat([rows.assign(task=task, target=rng.normal(size=40)) for task in ("x", "y")])
    long.to_csv(tmp_path / "long.csv", index=False)
    file = tmp_path / "long.yaml"
    file.write_text(
        "datasets: [{name: table, label: long, source: long.csv, splits: 2}]\nmethods: [stl]\nseeds: [0, 1]\n"
    )
    features, twice = told(file, tmp_path / "home")
    assert features == "long: the features are all other columns: size, age; set `features` for others"
    assert twice.startswith("long: ") and " of 16 test inputs stand in training or validation, too: x " in twice
    file.write_text(
        "datasets: [{name: table, label: long, source: long.csv, options: {features: [size, age], target: target}}]\n"
        "methods: [stl]\n"
    )
    assert len(told(file, tmp_path / "home")) == 1


def test_a_default_floor_that_does_not_apply_is_left_out_with_a_line(tags: Path, tmp_path: Path) -> None:
    floors = "mine: without the floor linear, which its pipeline leaves out"
    notes = told(tags, tmp_path / "home")
    assert notes[0] == floors
    assert "mine: sentences longer than `length` = 16 are cut 2 times: pos 2" in notes
    assert "mine: 1 of 4 test sentences stand in training or validation, too: pos 1" in notes
    experiment = load_experiment(tags)
    (data,) = experiment.data()
    assert [run.method for run in experiment.runs({data: ""})] == ["stl", "equal", "constant"]
    console = Console(file=io.StringIO(), width=200)
    with sketch(experiment, home=Home(tmp_path / "home")) as found:
        show(console, found, Forecasts((), slots=1))
    assert isinstance(console.file, io.StringIO) and floors in console.file.getvalue()


@pytest.mark.parametrize("line", ["floors: [constant, linear]", "methods: [stl, linear]"])
def test_a_floor_that_the_file_names_is_refused(line: str, tags: Path, tmp_path: Path) -> None:
    tags.write_text("".join(one for one in tags.read_text().splitlines(True) if not one.startswith(line[:6])) + line)
    if line.startswith("floors"):
        assert "methods" in tags.read_text()
    assert not any("without the floor" in note and "linear" in note for note in told(tags, tmp_path / "home"))
    done = mtlscale("run", tags, "--home", tmp_path / "home", "--dry-run")
    assert done.code == 2 and "linear looks at whole samples" in done.stderr


def test_data_sets_without_tags_keep_every_floor(tags: Path) -> None:
    tags.write_text(tags.read_text().replace("datasets: [", "datasets: [digits, "))
    experiment = load_experiment(tags)
    runs = experiment.runs(dict.fromkeys(experiment.data(), ""))
    assert [run.dataset for run in runs if run.method == "linear"] == ["digits"]
    assert experiment.left_out() == {("linear",): ["mine"]}


def test_forests_are_floors_of_tables_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("datasets: [{name: multilabel, options: {set: emotions}}, adult, digits, qm9]\nmethods: [stl]\n")
    experiment = load_experiment(path)
    labels = [dataset.label for dataset in experiment.datasets]
    runs = experiment.runs(dict.fromkeys(experiment.data(), ""))
    assert [run.dataset for run in runs if run.method == "forest"] == labels[:2]
    assert experiment.left_out() == {}
    assert [len(rows) for rows in planned_rows(experiment).values()] == [5, 5, 3, 3]


def test_rows_that_a_data_set_is_without_have_no_runs_and_a_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = "datasets: [adult, {name: digits, without: [mgda, stl]}, {name: qm9, without: [mgda, stl]}]\n"
    path.write_text(text + "methods: [stl, equal, mgda]\n")
    experiment = load_experiment(path)
    runs = [(run.dataset, run.method) for run in experiment.runs(dict.fromkeys(experiment.data(), ""))]
    assert {label for label, method in runs if method in ("mgda", "stl")} == {"adult"} and ("digits", "equal") in runs
    assert [len(rows) for rows in planned_rows(experiment).values()] == [7, 3, 3]
    assert list(left_out(experiment)) == ["digits, qm9: without the rows stl and mgda, as the file says"]

    path.write_text(text.replace("mgda", "mgd") + "methods: [stl, equal, mgda]\n")
    with pytest.raises(UserError, match=r"without of digits: unknown method 'mgd'.*mgda"):
        load_experiment(path)


def test_rows_of_a_plugin_that_a_data_set_is_without_are_none_of_a_submission(tmp_path: Path) -> None:
    text = "from mtlscale.balancing.losses.equal import Equal\n\n\nclass Mine(Equal):\n    name = 'mine'\n"
    (tmp_path / "mine.py").write_text(text)
    another_of_its_name = tmp_path / "another.py"
    another_of_its_name.write_text(f"{text}    other = True\n")
    path = tmp_path / "own.yaml"
    path.write_text(
        "plugins: [mine.py]\ndatasets: [adult, {name: digits, without: [mine, mgda]}]\nmethods: [stl, mgda, mine]\n"
    )
    load_plugin(another_of_its_name)
    outline = read_outline(path)
    assert list(outline.by_label()) == [("adult", "mine", 0)]
    assert outline.shipped is not None
    assert [dataset.without for dataset in outline.shipped.datasets] == [(), ("mgda",)]
