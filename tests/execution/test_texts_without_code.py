"""A stranger's path without code: three TSV files and an experiment file end in a tuned leaderboard."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from command import mtlscale, refused

TOLD = {"mood": ("good", "bad"), "size": ("big", "small"), "heat": ("hot", "cold")}  # the word that decides the label
EXPERIMENT = """\
name: mine
datasets:
  - name: text
    label: letters
    options: {tasks: {mood: mood.tsv, size: size.tsv, heat: heat.tsv}, text: sentence}
    metrics: [matthews, f1]
    delta: [matthews, f1]
methods: [stl, equal, mgda]
seeds: [0]
model: {encoder: {name: textcnn, filters: 8}}
training: {epochs: 8, batch_size: 32}
search:
  budget: 2
  space: {training.lr: {low: 3e-3, high: 3e-2, scale: log}}
tracking: {enabled: false}
"""


def written(folder: Path) -> Path:
    rng = random.Random(0)
    fillers = [f"{start}{vowel}{end}" for start in "bdfgklm" for vowel in "aeiou" for end in "nrst"]
    for task, words in TOLD.items():
        lines = ["sentence\tlabel"]
        for _ in range(200):
            label = rng.random() < 0.4
            sentence = [rng.choice(fillers) for _ in range(6)]
            sentence.insert(rng.randrange(7), words[not label])
            lines.append(f"{' '.join(sentence)}.\t{'yes' if label else 'no'}")
        (folder / f"{task}.tsv").write_text("\n".join(lines) + "\n")
    path = folder / "mine.yaml"
    path.write_text(EXPERIMENT)
    return path


def test_what_is_wrong_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path, home = written(tmp_path), tmp_path / "home"
    assert "has no column 'sentences'; it has sentence, label" in refused(
        "run", path, "--home", home, "--dry-run", "--set", "datasets.0.options.text=sentences"
    )
    (tmp_path / "heat.tsv").unlink()
    assert "text: heat.tsv of task heat is missing in" in refused("run", path, "--home", home, "--dry-run")
    assert not home.exists() or not any(home.iterdir())


@pytest.mark.ray
@pytest.mark.slow
def test_three_files_end_in_a_tuned_leaderboard(
    tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # the files are found beside the experiment
    path, home = written(tmp_path), tmp_path / "home"
    assert len(EXPERIMENT.splitlines()) == 15
    done = mtlscale("run", path, "--home", home)
    assert done.code == 0, done
    assert "trials finished; what they chose: " in done.stdout
    board = mtlscale("leaderboard", path, "--home", home, "--format", "csv")
    assert board.code == 0, board
    rows = {row["method"]: row for row in csv.DictReader(board.stdout.splitlines())}
    assert {"stl", "equal", "mgda", "constant", "linear"} <= set(rows)
    for method, row in rows.items():
        for task in TOLD:
            matthews, f1 = float(row[f"{task}.matthews"]), float(row[f"{task}.f1"])
            assert -1 <= matthews <= 1 and 0 <= f1 <= 100
            assert (matthews == 0) if method == "constant" else (matthews > 0.3 and f1 > 60), (method, task)
    assert (home / "experiments" / "mine" / "leaderboard.html").is_file()
