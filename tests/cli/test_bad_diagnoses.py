"""What `mtlscale diagnose` cannot compare, and data at the edge of what it can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import mtlscale, refused

PLUGINS = Path(__file__).parents[1] / "plugins"


def texts(folder: Path, **labels: list[str]) -> tuple[str, ...]:
    """Arguments for a set of texts with these labels, a task each."""
    for task, values in labels.items():
        rows = [f"{task} word{number % 7} other{number % 5} n{number}\t{label}" for number, label in enumerate(values)]
        (folder / f"{task}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    files = ", ".join(f"{task}: {task}.tsv" for task in labels)
    option = ("--option", f"tasks={{{files}}}", "--option", "text=sentence")
    return ("text", "--source", str(folder), *option, "--home", str(folder / "home"))


def diagnosed(*arguments: str) -> dict[str, Any]:
    done = mtlscale("diagnose", *arguments, "--json")
    assert done.code == 0, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    yes_no = ["yes", "no"] * 40
    one = texts(tmp_path, mood=yes_no)
    assert "one task: nothing to compare" in refused("diagnose", *one)
    two = texts(tmp_path, mood=yes_no, size=yes_no)
    assert "mlp reads vectors or images" in refused("diagnose", *two, "--encoder", "mlp")
    assert "did you mean hidden" in refused("diagnose", *two, "--encoder", "{name: averaged, hiden: [3]}")
    assert "write a name" in refused("diagnose", *two, "--encoder", "{hidden: [3]}")
    assert "--samples" in mtlscale("diagnose", *two, "--samples", "1").stderr
    assert "choose a number above 0" in refused("diagnose", *two, "--lr", "0")
    assert "try a smaller --lr" in refused("diagnose", *two, "--lr", "1e200")
    assert "has no column 'sentences'" in refused("diagnose", *two, "--option", "text=sentences")
    assert "mood.tsv of task mood is missing" in refused("diagnose", *two[:2], str(tmp_path / "home"), *two[3:])
    assert not (tmp_path / "home" / "diagnoses").exists()


def test_a_label_that_training_lacks_is_named(tmp_path: Path) -> None:
    arguments = texts(tmp_path, mood=["yes", "no"] * 40)
    for part, labels in {"train": ["yes", "no"] * 20, "test": ["yes", "never"] * 5}.items():
        rows = [f"{part} word{number}\t{label}" for number, label in enumerate(labels)]
        (tmp_path / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    tasks = "tasks={mood: mood.tsv, size: {train: train.tsv, test: test.tsv}}"
    assert "never" in refused("diagnose", *arguments[:4], tasks, *arguments[5:])


@pytest.mark.parametrize("samples", ["2", "5"])
def test_fewer_samples_than_numbers(tmp_path: Path, samples: str) -> None:
    """Random word vectors have 64 numbers; the tasks' inputs are their own."""
    found = diagnosed(*texts(tmp_path, mood=["yes", "no"] * 40, size=["big", "small"] * 40), "--samples", samples)
    assert all(0 <= value <= 1 for row in found["matrices"]["covariance"]["values"] for value in row)
    assert found["settings"]["samples"] == int(samples) and "labels" in found["left_out"]


def test_labels_that_are_all_alike_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose samples have one label in what is looked at: no correlation, and nothing else is lost."""
    from mtlscale.config import load_plugin

    load_plugin(PLUGINS / "uneven.py")
    home = ("--home", str(tmp_path))
    found = diagnosed("uneven", "--option", "shared=true", "--samples", "2", *home)
    assert set(found["matrices"]) >= {"conflict_before", "conflict_after", "affinity"}
    assert sorted(name for group in found["groups"] for name in group) == sorted(found["tasks"])
