"""A user's own pipeline that hands over something else than it should: one line, and nothing is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import refused

from mtlscale.training.losses import LOSSES
from pipelines._steps.suite import LABELS

MINE = '''\
import numpy as np
import pyarrow as pa
from mtlscale.config import SPLITS, Task, TaskSuite
from pipelines import Pipeline, Prepared

class Mine(Pipeline):
    """Two tasks of this test."""
    name = "mine"
    needs_source = False

    def prepare(self, source, work):
        rng = np.random.default_rng(0)
        tasks = (
            Task(name="a", loss="cross_entropy", outputs=3, metrics=("accuracy",)),
            Task(name="b", loss="bce", outputs=1, metrics=("f1",)),
            Task(name="c", loss="mse", outputs=1, metrics=("mse",)),
        )
        suite = TaskSuite(name="mine", tasks=tasks, inputs="per_task", input_kind="vector", input_shape=(4,))
        tables = {
            split: {
                task.name: pa.table({
                    "id": [f"{split}/{task.name}/{row:02d}" for row in range(12)],
                    "input": pa.FixedSizeListArray.from_arrays(rng.normal(size=48).astype(np.float32), 4),
                    f"target.{task.name}": np.arange(12) % 3 if task.name == "a" else
                        (np.arange(12) % 2).astype(np.float32) if task.name == "b" else rng.normal(size=12),
                })
                for task in tasks
            }
            for split in SPLITS
        }
        return Prepared(suite, tables)
'''
CHANGES: dict[str, tuple[str, str, str]] = {
    "no split": (
        "return Prep",
        "del tables['val']; return Prep",
        r"its tables have no split val; give train, val, test",
    ),
    "no stream": (
        "return Prep",
        "del tables['val']['b']; return Prep",
        r"the table of b in val is missing; streams: a, b, c",
    ),
    "no tasks": ("tasks=tasks", "tasks=()", r"its suite has no tasks; name at least one"),
    "no target": ('f"target.{task.name}"', '"label"', r"train of a has no column 'target.a'; it has id, input, label"),
    "no id": ('"id": [', '"name": [', r"train of a has no column 'id'; it has name, input, target.a"),
    "an id twice": (
        "{row:02d}",
        "{min(row, 10):02d}",
        r"mine: the source has two samples named train/a/10; remove one",
    ),
    "an id in two splits": ("{split}/", "", r"mine: sample a/00 is in train and in val; each belongs to one split"),
    "nothing": ("return Prepared(suite, tables)", "return None", r"`prepare` returns nothing; return Prepared"),
    "another thing": ("return Prepared(suite, tables)", "return tables", r"`prepare` returns a dict; return Prepared"),
    "an exception": (
        "rng = ",
        "raise ValueError('no luck\\nat all')\n        rng = ",
        r"mine.py:12: dataset mine: ValueError: no luck; mend the plugin$",
    ),
    "a missing file": ("rng = ", "open('/nowhere')\n        rng = ", r"mine.py:12: dataset mine: FileNotFoundError: "),
    "half a class": (
        "np.arange(12) % 3 if",
        "np.arange(12) / 2 if",
        r"column 'target.a' holds double; cross_entropy wants classes, whole numbers from 0 \(-1: missing\)",
    ),
    "half a label": (
        "(np.arange(12) % 2)",
        "(np.arange(12) % 2 / 2)",
        r"mine: train of b has 0.5 in target.b of sample train/b/01; labels of bce are 0, 1, or missing",
    ),
    "texts": (
        "np.arange(12) % 3 if",
        "list('xyz' * 4) if",
        r"column 'target.a' holds texts; cross_entropy wants classes, .*: number the classes from 0",
    ),
    "a class too many": (
        "np.arange(12) % 3 if",
        "np.arange(12) % 4 if",
        r"train of a has the class 3 in target.a of sample train/a/03; there are 0 to 2, -1 where",
    ),
    "a class below": ("np.arange(12) % 3 if", "np.arange(12) % 4 - 2 if", r"has the class -2 in target.a of sample"),
    "a NaN": (
        "rng.normal(size=48)",
        "np.where(np.arange(48) == 5, np.nan, 1)",
        r"train of a has nan in number 2 of input of sample train/a/01; mend or drop that row",
    ),
    "an infinity": ("rng.normal(size=48)", "np.where(np.arange(48) == 5, np.inf, 1)", r"has inf in number 2 of input"),
    "an empty cell": ('"id": [', '"id": [None if row == 3 else ', r"train of a has empty cells in id"),
    "a number for an id": (
        '"id": [f"{split}/{task.name}/{row:02d}"',
        '"id": [row',
        r"column 'id' holds int64; make the ids texts",
    ),
    "a wrong shape": (
        "input_shape=(4,)",
        "input_shape=(5,)",
        r"column 'input' holds lists of 4; the suite has a shape of \[5\], which is 5 a sample",
    ),
    "no shape": (
        "input_shape=(4,)",
        "input_shape=(0,)",
        r"input_shape = \(0,\) of vector inputs should be whole numbers",
    ),
    "no picture": (
        'input_kind="vector"',
        'input_kind="image"',
        r"input_shape = \(4,\) of image inputs should be \(chann",
    ),
    "no outputs": ("outputs=3", "outputs=0", r"task a: outputs = 0 should be a whole number of at least 1"),
    "one output": ("outputs=3", "outputs=1", r"task a: cross_entropy needs at least 2 outputs, one per class; use bce"),
    "outputs that are none": ("outputs=3", "outputs=2.5", r"task a: outputs = 2.5 should be a whole number"),
    "no metrics": (
        'metrics=("accuracy",)',
        "metrics=()",
        r"task a: metrics is empty; name at least one, as in metrics=\(",
    ),
    "metrics as a text": (
        'metrics=("accuracy",)',
        'metrics="accuracy"',
        r"task a: metrics is the text 'accuracy'; name",
    ),
    "an unknown metric": (
        'metrics=("accuracy",)',
        'metrics=("acuracy",)',
        r"task a: unknown metric 'acuracy': did you mean acc",
    ),
    "another loss's metric": (
        'metrics=("accuracy",)',
        'metrics=("rmse",)',
        r"task a: metric 'rmse' is not defined for loss 'cross_entropy'; use one of accuracy",
    ),
    "an unknown loss": ('loss="mse"', 'loss="msee"', r"task c: unknown loss 'msee': did you mean mse"),
    "an unknown kind": (
        'input_kind="vector"',
        'input_kind="text"',
        r"input_kind = 'text' is unknown; choose vector, tokens",
    ),
    "a name twice": ('Task(name="b"', 'Task(name="a"', r"task a is there twice; rename one"),
    "a name outside": ('Task(name="b"', 'Task(name="../b"', r"a task is called '../b'; files are named by it"),
    "classes that are few": (
        "outputs=3,",
        "outputs=3, classes=('x', 'y'),",
        r"task a: 2 names of classes for 3 classes",
    ),
    "classes that are many": (
        'loss="bce", outputs=1,',
        'loss="bce", outputs=1, classes=("x", "y", "z"),',
        r"task b: 3 names of classes for 2 classes",
    ),
    "tokens as numbers": (
        'input_kind="vector"',
        'input_kind="tokens", vocabulary_size=9',
        r"column 'input' holds .*; tokens are whole numbers",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("command", ["dry run", "run"])
def test_a_pipeline_that_hands_over_something_else(
    change: str, command: str, tmp_path: Path, experiment_file: Callable[..., Path]
) -> None:
    if command == "run" and change not in ("no split", "nothing", "an exception", "half a label"):
        pytest.skip("prepared as by the others")
    before, after, message = CHANGES[change]
    assert before in MINE
    (tmp_path / "mine.py").write_text(MINE.replace(before, after))
    path, home = experiment_file(plugins="[mine.py]", datasets="[mine]"), tmp_path / "home"
    told = refused("run", path, "--home", home, *(["--dry-run"] if command == "dry run" else []))
    assert re.search(message, told), told
    assert not home.exists()


def test_the_pipeline_itself_is_good(tmp_path: Path, experiment_file: Callable[..., Path]) -> None:
    from command import mtlscale

    (tmp_path / "mine.py").write_text(MINE)
    done = mtlscale("run", experiment_file(plugins="[mine.py]", datasets="[mine]"), "--dry-run", "--home", tmp_path)
    assert done.code == 0, done


def test_every_loss_says_what_its_labels_are() -> None:
    assert set(LABELS) == set(LOSSES)
