"""`mtlscale diagnose` as a user meets it, on data that ship with a library."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import mtlscale, refused

from mtlscale.config import load_experiment
from mtlscale.records import Diagnosis, Matrix
from mtlscale.report.diagnosis.diagnosis_page import page
from mtlscale.report.diagnosis.diagnosis_trial import experiment

UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"


def test_digits_from_nothing_to_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    done = mtlscale("diagnose", "digits", "--home", "home", "--output", "found", "--samples", "100")
    assert done.code == 0, done.stderr
    assert "suggested groups" in done.stdout and "covariance similarity" in done.stdout
    tables = done.stdout.split("no labels:")[0].splitlines()[1:]  # four: a title, a header, its line and ten rows
    assert len(tables) == 4 * 13 and max(map(len, tables)) <= 80
    content = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    assert content["schema"] == 1 and content["tasks"] == [f"digit{digit}" for digit in range(10)]
    assert set(content["matrices"]) == {"covariance", "conflict_before", "conflict_after", "affinity"}
    for matrix in content["matrices"].values():
        assert [len(row) for row in matrix["values"]] == [10] * 10
    assert sorted(name for group in content["groups"] for name in group) == content["tasks"]
    text = (tmp_path / "found" / "diagnosis.html").read_text()
    figures = re.findall(r'<script type="application/json" data-for="(figure-\d)">(.*?)</script>', text)
    assert [name for name, _ in figures] == [f"figure-{place}" for place in range(5)]
    tree, first = (json.loads(figure)["concat"][0]["layer"] for _, figure in figures[:2])
    joints = {point["line"] for part in tree if part["mark"]["type"] == "line" for point in part["data"]["values"]}
    assert len(joints) == 9 and first[0]["mark"]["type"] == "rect" and len(first[0]["data"]["values"]) == 10 * 10
    assert not re.search(r'(src|href)="http', text.split("<footer>")[0])
    trial = load_experiment(tmp_path / "found" / "groups.yaml")
    assert [method.label for method in trial.methods][:3] == ["stl", "everything", "groups"]
    given = trial.methods[2].architecture.options["groups"]
    assert [group.split(", ") for group in given] == content["groups"] and content["verdict"] in text


def test_what_is_tried() -> None:
    settings = {"encoder": {"name": "mlp", "results_version": 1, "hidden": [64], "dropout": 0.1}}
    found = diagnosis(["a", "b", "c"], {**settings, "batch_size": 64, "lr": 1e-3}, [[0, 1], [2]], [[0], [1, 2]])
    content = yaml.safe_load(experiment(found, {"set": "yeast"}, "/raw") or "")
    assert content["datasets"] == [{"name": "set", "options": {"set": "yeast"}, "source": "/raw"}]
    assert content["model"] == {"encoder": {"name": "mlp", "dropout": 0.1}}
    assert [method["groups"] for method in content["methods"][2:]] == [["a, b", "c"], ["a", "b, c"]]
    assert experiment(diagnosis(["a", "b"], found.settings, [[0, 1]], [[0, 1]]), {}) is None
    assert experiment(diagnosis(["a", "b"], found.settings, [[0], [1]], [[0, 1]]), {}) is None  # that is stl


@pytest.mark.slow
def test_the_data_set_of_an_experiment_is_diagnosed(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment_file(datasets="[{name: uneven, options: {shared: true}}]")
    done = mtlscale("diagnose", path, "--json", "--samples", "32", "--home", tmp_path / "home")
    assert done.code == 0, done
    found = json.loads(done.stdout)
    assert found["tasks"] == ["a", "b", "c"] and found["dataset"] == "uneven"
    assert found["settings"]["encoder"]["hidden"] == [8]
    for trial in (tmp_path / "home").rglob("groups.yaml"):
        assert load_experiment(trial).plugins == (UNEVEN,)


def test_a_pipeline_of_ones_own_is_known(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(UNEVEN.read_text().replace('] = "uneven"', '] = "mine"'))
    message = refused("diagnose", "mine", "--plugin", own, "--encoder", "textcnn", "--home", tmp_path / "home")
    assert "textcnn reads tokens" in message


def test_an_experiment_hands_over_its_set_plugins_and_encoder(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment_file(model="{encoder: textcnn}")
    assert "textcnn reads tokens" in refused("diagnose", path, "--home", tmp_path / "home")


def test_an_experiment_that_names_no_single_set_is_refused(experiment_file: Callable[..., Path]) -> None:
    two = experiment_file(datasets="[uneven, digits]")
    assert "has several data sets: uneven, digits; diagnose one by its name" in refused("diagnose", two)
    assert "its data set's options are in the file" in refused("diagnose", two, "--option", "shared=true")
    some = experiment_file(datasets="[{name: uneven, tasks: [a, b]}]")
    assert "drop `tasks` of the data set" in refused("diagnose", some)


def diagnosis(
    tasks: list[str], settings: dict[str, Any], groups: list[list[int]], two_groups: list[list[int]]
) -> Diagnosis:
    rows: list[list[float | None]] = [[None] * len(tasks)] * len(tasks)
    return Diagnosis(
        *("set", "", tuple(tasks), settings, {}, "affinity", rows, rows, [], groups, two_groups, "One sentence.")
    )


def test_the_page_escapes_what_users_name() -> None:
    matrix = Matrix("affinity", "what", [[1.0, None], [None, 1.0]])
    rows: list[list[float | None]] = [[None, None], [None, None]]
    found = Diagnosis(
        *("<b>", "", ("<i>", "y"), {}, {"affinity": matrix}, "affinity", rows, rows),
        *([(0, 1, 0.0, 2)], [[0], [1]], [[0, 1]], "<i> is best alone."),
    )
    head = page(found).split("<footer>")[0]
    assert "<i>" not in head and "<b>:" not in head and "&lt;i&gt; is best alone." in head
