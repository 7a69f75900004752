"""What of a pretrained language model should learn: accuracy, samples/s and memory on three sentence tasks.

The experiment `sentences_pretrained_cpu` with equal weights: linear heads on features that were computed once; the same
with a pass through the frozen model in every step; adapters (LoRA); the whole model. Learning rates are what is usual
for each, not tuned. Every row has a process of its own, whose peak memory is told, and sees the same sentences in the
same order; the last has all training sentences ten times, which is cheap where features are there. Samples/s are of
the steps alone, of the clock and of the processor's time, which other load on the machine disturbs less. Above the
table: how long the sets took to prepare, and how long a second time, which finds them.

Example:
    python benchmarks/run.py pretrained --checkpoint minilm --source data/sentence_tasks
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT, Sheet, apart, say

from mtlscale.config import Run, UserError, load_experiment

EXPERIMENT = ROOT / "experiments" / "sentences_pretrained_cpu.yaml"
TOKENS, FEATURES = "tokens", "features"
WHOLE = ("training.epochs=10", "training.steps_per_epoch=null", "training.evaluate_every=10")
HEADS = ("training.lr=1e-2",)


@dataclass(frozen=True)
class Row:
    """What is compared: a data set of the experiment, and settings."""

    name: str
    data: str
    settings: tuple[str, ...]


ROWS = (
    Row("heads, on features computed once", FEATURES, HEADS),
    Row("heads, frozen model in every step", TOKENS, ("model.encoder.tune=frozen", *HEADS)),
    Row("adapters (LoRA)", TOKENS, ("model.encoder.tune=lora", "training.lr=1e-3")),
    Row("the whole model", TOKENS, ("model.encoder.tune=full", "training.lr=1e-4")),
    Row("heads, on features, all sentences", FEATURES, (*HEADS, *WHOLE)),
)


@dataclass(frozen=True)
class Found:
    """A run's end. Rates are medians over epochs, which see the same number of samples."""

    per_second: float
    per_cpu_second: float
    memory: float  # MiB
    learning: int  # parameters
    accuracy: dict[str, float]
    hardware: str


def prepared(label: str, settings: tuple[str, ...], source: Path | None, home: Path) -> tuple[Path, float]:
    """The folder of one of the experiment's data sets, and seconds until it was there."""
    from mtlscale.execution.preparing.prepare import prepare

    [data] = [data for data in load_experiment(EXPERIMENT, settings).datasets if data.label == label]
    started = time.perf_counter()
    return prepare(data.name, data.options, source, home, engine="local"), time.perf_counter() - started


def trained(label: str, settings: tuple[str, ...], folder: Path) -> Found:
    """The run with equal weights on a prepared set, in this process."""
    from mtlscale.data import load_prepared
    from mtlscale.training import Trainer

    data = load_prepared(folder)
    trainer = Trainer(_run(label, settings, data.manifest.fingerprint), data)
    learning = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    steps, rates, record = trainer.train(), [], None
    while record is None:
        seen, started = trainer.at.samples, time.process_time()
        try:
            epoch = next(steps)
        except StopIteration as stop:
            record = stop.value
        else:
            if not epoch.val:  # the processor's time is that of the steps alone
                samples = trainer.at.samples - seen
                rates.append((samples / epoch.seconds, samples / (time.process_time() - started)))
    wall, cpu = (statistics.median(its) for its in zip(*rates, strict=True))
    accuracy = {task: found["accuracy"] for task, found in record.metrics["test"].items()}
    return Found(wall, cpu, record.peak_memory_mb, learning, accuracy, record.hardware)


def _run(label: str, settings: tuple[str, ...], fingerprint: str) -> Run:
    experiment = load_experiment(EXPERIMENT, settings)
    runs = experiment.runs(dict.fromkeys(experiment.data(), fingerprint))
    return next(run for run in runs if (run.dataset, run.method) == (label, "equal"))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="a pretrained model's, as in docs/datasets_texts.md"
    )
    parser.add_argument("--source", type=Path, help="folder with the sentence tasks; default: $MTLSCALE_DATA's")
    parser.add_argument("--set", action="append", default=[], help="another setting of the experiment, KEY=VALUE")
    parser.add_argument("--home", type=Path, help="folder that keeps the prepared sets; default: none does")


def run(options: argparse.Namespace) -> None:
    folder = options.checkpoint.absolute()
    named = [f"datasets.{place}.options.tokenizer={folder}" for place in (0, 1)]
    settings = (f"model.encoder.checkpoint={folder}", *named, *options.set)
    folders: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as empty:
        home = options.home or Path(empty)
        try:
            load_experiment(EXPERIMENT, settings)
        except UserError as mistake:
            sys.exit(str(mistake))
        for label in (TOKENS, FEATURES):
            folders[label], first = apart(prepared, label, settings, options.source, home)
            again, second = apart(prepared, label, settings, options.source, home)
            assert again == folders[label]
            say(f"{label}: prepared in {first:.1f} s, found again in {second:.2f} s", first=first, second=second)
        rows = {row.name: apart(trained, row.data, (*settings, *row.settings), folders[row.data]) for row in ROWS}
    columns = ("what learns", "samples/s", "per CPU second", "peak memory, MiB", "parameters that learn")
    first_row = next(iter(rows.values()))
    sheet = Sheet(first_row.hardware, *columns, *first_row.accuracy)
    for name, found in rows.items():
        rates = (round(found.per_second), round(found.per_cpu_second), round(found.memory), found.learning)
        sheet.row(name, *rates, *(f"{value:.1f}" for value in found.accuracy.values()))
    sheet.show()
