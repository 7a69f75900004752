"""Runs of every kind of data, small, for tests of readers: what they are, and all that they end with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, SPLITS, Experiment, Run, Task, TaskSuite, load_plugin
from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.readers.prepared import SourceInfo
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer
from pipelines import Pipeline, Prepared, write_prepared

TESTS = Path(__file__).parents[1]
EXAMPLES = (path for path in (TESTS.parent / "docs" / "examples").glob("*.py") if path.name != "write_files.py")
PLUGINS = (*(TESTS / "plugins").glob("[su][hn]*.py"), *EXAMPLES)
TRAINING = {"epochs": 2, "batch_size": 8, "lr": 1e-2, "optimizer": "sgd", "momentum": 0.9, "eval_batch_size": 7}
VECTORS = {"encoder": {"name": "mlp", "hidden": [8]}}
TOKENS = {"encoder": {"name": "textcnn", "dimensions": 8, "filters": 4}, "dropout": 0.3}
FACES = {"encoder": {"name": "resnet18", "width": 4, "stem": "small"}}
MAPS = {"encoder": {"name": "deeplab_resnet18", "width": 4, "stem": "small", "head_width": 4, "rates": [1, 2]}}

# Name -> data set, its options, method, model, more settings.
CASES: dict[str, tuple[str, dict[str, Any], Any, dict[str, Any], dict[str, Any]]] = {
    "vectors": ("uneven", {}, "mgda", VECTORS, {"dtype": "float64"}),
    "shared vectors": ("uneven", {"shared": True}, "pcgrad", VECTORS, {"accumulate": 3}),
    "tokens with weights": ("words", {}, "gradnorm", TOKENS, {}),
    "images": ("shapes", {"maps": False, "size": 40}, "equal", FACES, {"augment": "flip"}),
    "maps": ("shapes", {"maps": True, "size": 16}, "mgda", MAPS, {"augment": "scale_crop", "dtype": "float64"}),
    "unlabelled": ("shifted", {}, {"name": "mean_matching", "strength": 0.5}, VECTORS, {}),
    "halves": ("uneven", {}, "meta_weighting", VECTORS, {}),
    "two turns": ("uneven", {}, {"architecture": "gated", "balancer": "getmtl"}, VECTORS, {}),
}


class Words(Pipeline):
    """Documents with a label of their own, some missing, some of no weight."""

    name = "words"


def write_words(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    tasks = [Task(name=name, loss="cross_entropy", outputs=2, metrics=("accuracy",)) for name in ("a", "b")]
    suite = TaskSuite(
        name="words",
        tasks=tuple(tasks),
        inputs="per_task",
        input_kind="tokens",
        input_shape=(12,),
        vocabulary_size=30,
        weighted=True,
    )
    tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
    for split, (stream, rows) in itertools.product(SPLITS, (("a", 21), ("b", 13))):
        tokens = rng.integers(1, 30, (rows, 12)).astype(np.int32)
        labels = ((tokens % 7 == 2).sum(1) > 1).astype(np.int8)
        labels[4] = MISSING_CLASS
        tables[split][stream] = pa.table(
            {
                "id": [f"{split}/{stream}/{row:03d}" for row in range(rows)],
                "input": pa.FixedSizeListArray.from_arrays(tokens.ravel(), 12),
                f"target.{stream}": labels,
                "weight": rng.integers(0, 3, rows).astype(np.float32),
            }
        )
    folder.mkdir(parents=True)
    vocabulary = ["<pad>", "<unk>", *(f"w{n}" for n in range(28))]
    info = SourceInfo(description="rows of this test", fingerprint="0")
    write_prepared(folder, Words(), info, Prepared(suite, tables, vocabulary=vocabulary))
    return folder


def loader(home: Path) -> Callable[[str], PreparedData]:
    """What gives the data of a case, prepared below this folder."""
    for plugin in PLUGINS:
        load_plugin(plugin)
    words = write_words(home / "data" / "words" / "a")

    def find(case: str) -> PreparedData:
        name, options, *_ = CASES[case]
        return load_prepared(words if name == "words" else prepare(name, options, None, home))

    return find


def run_of(case: str, reader: str, **more: Any) -> Run:
    _, _, method, model, training = CASES[case]
    experiment = Experiment.model_validate(
        {
            "name": "readers",
            "datasets": ["digits"],  # never prepared
            "floors": [],
            "methods": [method],
            "model": model,
            "training": {**TRAINING, **training, **more, "reader": reader},
        }
    )
    return next(experiment.runs({"digits": case}))


def ended(trainer: Trainer) -> dict[str, Tensor]:
    """All that a run ends with, in numbers."""
    steps = trainer.train()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            record = stop.value
            break
    state = {f"last {name}": value for name, value in trainer.model.state_dict().items()}
    state |= {f"chosen {name}": value for name, value in trainer.chosen_state.items()}
    for split, tasks in record.metrics.items():
        for task, metrics in tasks.items():
            values = [value for _, value in sorted(metrics.items())]
            state[f"{split} {task}"] = torch.tensor(values, dtype=torch.float64)
    losses = [list(epoch.train_loss.values()) for epoch in record.epochs]
    counts = [record.steps, record.samples, record.chosen_epoch or 0]
    return state | {"losses": torch.tensor(losses, dtype=torch.float64), "counts": torch.tensor(counts)}


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor], what: str) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.numpy().tobytes() == right[name].numpy().tobytes(), f"{what}: {name}"
