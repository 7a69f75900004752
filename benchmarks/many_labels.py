"""Whole runs on real sets with many labels on one input, with the tasks' gradients and without: CPU seconds of
training, and over those of equal weighting.

    MTLSCALE_DATA=DIR python benchmarks/many_labels.py                  # yeast, 14 labels; CelebA, 40 labels
    MTLSCALE_DATA=DIR python benchmarks/many_labels.py --set yeast --trials 8    # eight trials as one batched model

Everything a run does is in its time: batches, validation, choosing an epoch. Runs with and without alternate; figures
are the least of `--repeats`. Prepared sets are kept in `--home`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.config import Experiment, Run, trials
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer
from mtlscale.training.gradients import update
from mtlscale.training.gradients.layerwise_gramian import by_layers

SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "yeast": ("multilabel", {"set": "yeast"}),
    "celeba": ("celeba", {"size": 16, "attributes": "all", "split": "own"}),
}
METHODS = ("equal", "mgda", "cagrad", "getmtl")


def experiment(name: str, hidden: int, epochs: int, batch: int, count: int) -> Experiment:
    pipeline, options = SETS[name]
    content: dict[str, Any] = {
        "name": f"many_{name}",
        "datasets": [{"name": pipeline, "options": options}],
        "methods": list(METHODS),
        "floors": [],
        "seeds": [0],
        "model": {"encoder": {"name": "mlp", "hidden": [hidden, hidden]}},
        "training": {"epochs": epochs, "batch_size": batch, "evaluate_every": epochs},
    }
    if count > 1:
        space = {"training.lr": {"low": 1e-4, "high": 3e-3, "scale": "log"}}
        content["search"] = {"budget": count, "space": space, "methods": {method: {} for method in METHODS}}
    return Experiment.model_validate(content)


def seconds(runs: list[Run], data: PreparedData, *, gradients: bool) -> float:
    """CPU seconds of one run, or of several as one batched model."""
    update.by_layers = (lambda strategy, asked: strategy.by_gradients(asked)) if gradients else by_layers
    started = time.process_time()
    trainer = Trainer(runs[0], data) if len(runs) == 1 else BatchedTrainer(runs, data)
    if gradients and isinstance(trainer, BatchedTrainer):
        trainer.session.network.taps = None
    for _ in trainer.train():
        pass
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="yeast,celeba", help="comma-separated")
    parser.add_argument("--hidden", type=int, default=512, help="units of each of two layers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--trials", type=int, default=1, help="so many as one batched model")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    home = arguments.home or Path(tempfile.mkdtemp())
    for name in arguments.set.split(","):
        pipeline, options = SETS[name]
        data = load_prepared(prepare(pipeline, options, None, home))
        made = experiment(name, arguments.hidden, arguments.epochs, arguments.batch, arguments.trials)
        fingerprints = dict.fromkeys(made.data(), data.manifest.fingerprint)
        if made.search is None:
            groups = {run.method: [run] for run in made.runs(fingerprints)}
        else:
            groups = {run.method: list(trials(made.search, run)) for run in made.bases(fingerprints)}
        best: dict[tuple[str, bool], float] = {}
        for _ in range(arguments.repeats):
            for method, runs in groups.items():
                for gradients in (True, False):
                    found = seconds(runs, data, gradients=gradients)
                    best[method, gradients] = min(found, best.get((method, gradients), found))
        table = Table("method", "s with", "s without", "ratio", "with / equal", "without / equal")
        for method in groups:
            before, after = best[method, True], best[method, False]
            against = [before / best["equal", True], after / best["equal", False]]
            table.add_row(method, *(f"{cell:.2f}" for cell in (before, after, after / before, *against)))
        table.title = f"{name}: {len(data.suite.tasks)} labels, {arguments.trials} trial(s), CPU seconds"
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
