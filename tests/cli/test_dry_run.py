"""A dry run says what can be said, and prepares, fetches and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import mtlscale, refused

from mtlscale.config import load_experiment
from mtlscale.data import PreparedData
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Home, Ledger
from mtlscale.training import train

File = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTLSCALE_DATA", raising=False)


def planned(*arguments: str | Path) -> dict[str, Any]:
    done = mtlscale(*arguments, "--dry-run", "--json")
    assert done.code == 0, done
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found["event"] == "plan"
    return found


def test_without_data_ids_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a dry run fetches nothing")

    monkeypatch.setattr("urllib.request.urlopen", never)
    home = tmp_path / "home"
    found = planned("run", "newsgroups_quick", "--home", home)
    assert found["unknown"] == {"newsgroups": "its files are fetched when it is prepared"}
    assert found["runs"] and all(run["run"] is None and run["steps"] is None for run in found["runs"])
    assert all(run["state"] == "unknown" and run["epochs"] > 0 for run in found["runs"])
    assert found["seconds"] is None and not found["complete"]
    text = mtlscale("run", "newsgroups_quick", "--home", home, "--dry-run").stdout
    assert " ? " in text and "unknown until it is prepared" in text and "no estimate, as no runs" in text
    assert not home.exists()


def test_data_that_are_made_up_are_known(experiment_file: File, tmp_path: Path) -> None:
    home = tmp_path / "home"
    lines = "[uneven, {name: newsgroups, model: {encoder: textcnn}}]"
    found = planned("run", experiment_file(datasets=lines), "--home", home)
    known = [run for run in found["runs"] if run["dataset"] == "uneven"]
    assert len(known) == 3 and len({run["run"] for run in known}) == 3 and all(run["steps"] > 0 for run in known)
    assert [run["run"] for run in found["runs"] if run["dataset"] == "newsgroups"] == [None] * 3
    assert "reader" in found["reading"]["uneven"] and found["samples"]["uneven"]
    assert not home.exists() and not list(tmp_path.glob("**/manifest.json"))


def test_what_it_takes_is_read_off_runs_like_it(
    experiment_file: File, uneven: Callable[..., PreparedData], tmp_path: Path
) -> None:
    home, path = Home(tmp_path / "home"), experiment_file(methods="[equal, mgda]", seeds="[0, 1]")
    unknown = planned("run", path, "--home", home.root)
    assert [row["method"] for row in unknown["estimates"]] == ["equal", "mgda"] and not unknown["complete"]
    for row in unknown["estimates"]:
        assert row["runs"] == 2 and row["seconds"] is row["megabytes"] is row["parameters"] is None
    experiment, data = load_experiment(path), uneven()
    prepare("uneven", {}, None, home.root)
    run = next(run for run in experiment.runs({"uneven": data.manifest.fingerprint}) if run.method == "mgda")
    record = train(run, data)
    Ledger(home.ledger("another")).append(record.model_copy(update={"experiment": "another", "seconds": 30.0}))
    longer = planned("run", path, "--home", home.root, "--set", "training.epochs=6", "--set", "training.lr=0.5")
    equal, mgda = longer["estimates"]
    assert equal["seconds"] is None and not longer["complete"]
    assert mgda["time_from"] == mgda["memory_from"] == "1 run of another"
    assert mgda["seconds"] == pytest.approx(60.0) and mgda["parameters"] == record.parameters
    wider = planned("run", path, "--home", home.root, "--set", "model.encoder.hidden=[9]")
    assert wider["estimates"][1]["seconds"] is None  # another shape
    text = mtlscale("run", path, "--home", home.root, "--dry-run").stdout
    assert "1 run of another" in text and "all together: more than" in text


def test_a_search_without_data(experiment_file: File, tmp_path: Path) -> None:
    lines = {
        "datasets": "[{name: newsgroups, model: {encoder: textcnn}}]",
        "search": "{budget: 5}",
        "methods": "[mgda]",
    }
    found = planned("sweep", experiment_file(**lines), "--home", tmp_path / "home")
    (search,) = found["searches"]
    assert (search["trials"], search["done"]) == (5, 0) and "training.lr" in search["searched"]
    assert [row["runs"] for row in found["estimates"]] == [5]


def test_nothing_is_cut_at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    label = "a_method_whose_name_is_longer_than_many_others"
    settings = ("--set", "seeds=[0]", "--set", f"methods.3={{name: mgda, label: {label}}}", "--only", label)
    done = mtlscale("run", "quickstart", *settings, "--dry-run", "--home", tmp_path)
    assert done.code == 0, done
    squeezed = "".join(done.stdout.split())
    assert "…" not in done.stdout and max(map(len, done.stdout.splitlines()[:8])) <= 80
    assert "mgda" not in squeezed or label[:20] in squeezed


def test_options_that_do_not_go_together(experiment_file: File, tmp_path: Path) -> None:
    path = experiment_file()
    assert "drop one of them" in refused("run", path, "--fast", "--dry-run", "--home", tmp_path / "home")
    told = refused("run", path, "--only", "mdga", "--home", tmp_path / "home")
    assert told == "--only mdga: small has no such method; did you mean mgda?"
    told = refused("run", path, "--dataset", "unevn", "--home", tmp_path / "home")
    assert told == "--dataset unevn: small has no such data set; did you mean uneven?"
    assert [run["method"] for run in planned("run", path, "--only", "mgda", "--home", tmp_path / "home")["runs"]] == [
        "mgda"
    ]


def test_what_to_read_before_the_results_is_said(tmp_path: Path) -> None:
    rows = [f"{row},{row * row % 7},{'ny'[row % 2]},{'ny'[row % 2]}" for row in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,copy,good", *rows]) + "\n")
    path = tmp_path / "table.yaml"
    path.write_text(
        "name: table\ndatasets: [{name: table, source: table.csv, options: {targets: {good: class}}}]\n"
        "methods: [equal]\nfloors: []\ntraining: {epochs: 1}\n"
    )
    assert any(
        "'copy' gives target 'good' away" in line for line in planned("run", path, "--home", tmp_path)["remarks"]
    )
    text = mtlscale("run", path, "--home", tmp_path, "--dry-run").stdout
    assert "column 'copy' gives target 'good' away without an error" in text
