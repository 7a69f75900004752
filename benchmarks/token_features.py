"""Features of words from a frozen language model: Ray Data's actors beside a plain loop, with as many threads.

The sentences of one or more treebanks, as pieces of the checkpoint's tokenizer. The plain loop is one process that
holds the model and has torch's threads work on its batches, each padded to its longest sentence; ours are as many
actors as that has threads, each with the model and one thread. Both run in turns, so that other load meets them alike,
and have to find the same features. Starting the actors and loading the model are counted, and told.

Then the layers of `token_layers` are trained on these features with one thread: a run of ours, a task for each language
and equal weights, beside a loop of torch over the same network, sentences drawn anew in every epoch and padded to the
longest of a batch and language.

Example:
    MTLSCALE_DATA=/data python benchmarks/token_features.py --checkpoint e5 --languages te vi
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from rich.console import Console
from rich.table import Table

from mtlscale.config import MISSING_CLASS, SPLITS, Experiment, Run, TaskSuite, build
from mtlscale.data import PreparedData
from mtlscale.data.format.sequences import RaggedSamples
from mtlscale.execution.cluster.cluster import session
from mtlscale.training import Trainer, finish
from pipelines import PrepareContext, Prepared
from pipelines._texts.token_features import TokenFeatures, with_token_features

ROWS = 256  # of a block
HIDDEN, BATCH, RATE = (128,) * 5, 32, 2e-3


def sentences(source: Path, checkpoint: Path, languages: tuple[str, ...], limit: int) -> tuple[TaskSuite, pa.Table]:
    """All sentences of the languages as pieces, in one table."""
    pipeline = build("datasets", "ud", {"languages": languages, "tokenizer": str(checkpoint), "limit": limit})
    prepared: Prepared = pipeline.prepare(pipeline.locate(source), PrepareContext())
    tables = [prepared.tables[split][task].rename_columns(["id", "input", "label"])
              for split in SPLITS for task in languages]  # fmt: skip
    return prepared.suite, pa.concat_tables(tables).combine_chunks()


def plain_loop(suite: TaskSuite, table: pa.Table, checkpoint: Path, threads: int, seen: list[float]) -> pa.Table:
    torch.set_num_threads(threads)
    started = time.perf_counter()
    encoder = build("encoders", "pretrained_layers", {"checkpoint": str(checkpoint), "hidden": [1]})
    function = TokenFeatures(suite, encoder, "label")
    seen.append(time.perf_counter() - started)
    return pa.concat_tables([function(table.slice(start, ROWS)) for start in range(0, len(table), ROWS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = os.environ.get("MTLSCALE_DATA")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the model")
    parser.add_argument("--source", type=Path, default=Path(usual, "ud") if usual else None)
    parser.add_argument("--languages", nargs="+", default=["te"])
    parser.add_argument("--limit", type=int, default=0, help="sentences of each part of a language; 0: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="turns")
    parser.add_argument("--epochs", type=int, default=3, help="of training")
    options = parser.parse_args()
    if options.source is None:
        parser.error("name the treebanks' folder by --source, or the folder above by MTLSCALE_DATA")
    suite, table = sentences(options.source, options.checkpoint, tuple(options.languages), options.limit)
    tags = table["label"].combine_chunks().flatten().to_numpy()
    words, pieces = (
        int((tags != MISSING_CLASS).sum()),
        int((table["input"].combine_chunks().flatten().to_numpy() != 0).sum()),
    )
    features = measured(suite, table, options.checkpoint, options.threads, options.repeats, (words, pieces))
    trained(suite, features, options.epochs, options.repeats)


def measured(
    suite: TaskSuite, table: pa.Table, checkpoint: Path, threads: int, repeats: int, tokens: tuple[int, int]
) -> pa.Table:
    """The features, after both ways have been timed."""
    import ray

    ray.init(address="local", num_cpus=threads, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    seconds: dict[str, list[float]] = {"plain loop": [], "Ray Data's actors": []}
    loading: list[float] = []
    found: dict[str, list[bytes]] = {}
    work = replace(PrepareContext(), engine="ray", rows_per_block=ROWS)
    with session():
        for _ in range(repeats):
            for way, times in seconds.items():
                started = time.perf_counter()
                if way == "plain loop":
                    result = plain_loop(suite, table, checkpoint, threads, loading)
                else:
                    result, _ = with_token_features(table, suite, checkpoint, work)
                times.append(time.perf_counter() - started)
                found[way] = result.sort_by("id")["input"].to_pylist()
    ray.shutdown()
    first, second = (np.frombuffer(b"".join(its), np.float16).astype(np.float32) for its in found.values())
    title = f"{len(table)} sentences, {tokens[0]} words, {tokens[1]} pieces; {threads} threads, {repeats} turns"
    shown = Table("", "seconds", "words/s", "pieces/s", "times the plain loop", title=title)
    for way, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(seconds["plain loop"], times, strict=True))
        best = min(times)
        shown.add_row(way, f"{best:.1f}", f"{tokens[0] / best:.0f}", f"{tokens[1] / best:.0f}", f"{ratio:.2f}")
    Console(width=120).print(shown)
    print(f"loading the model takes the loop {min(loading):.1f} s of these; largest difference of the features "
          f"{float(np.abs(first - second).max()):.1e}")  # fmt: skip
    return result


def trained(suite: TaskSuite, table: pa.Table, epochs: int, repeats: int) -> None:
    """Words per second of training: a run of ours beside a plain loop."""
    torch.set_num_threads(1)
    samples = {task: samples_of(task, table) for task in suite.streams}
    size = next(iter(samples.values())).take(torch.tensor([0])).inputs.shape[-1]
    suite = replace(suite, input_kind="vector", input_shape=(suite.input_shape[0], size), vocabulary_size=None,
                    extras={})  # fmt: skip
    few = {task: its.take(torch.arange(8)) for task, its in samples.items()}
    data = PreparedData(Path(), None, suite, {"train": samples, "val": few, "test": few})  # type: ignore[arg-type]
    words = {task: int((its.targets[task] != MISSING_CLASS).sum()) / len(its) for task, its in samples.items()}
    seconds: dict[str, list[float]] = {"plain loop": [], "ours": []}
    losses: dict[str, float] = {}
    steps = -(-max(map(len, samples.values())) // BATCH)
    for turn in range(repeats):
        started = time.perf_counter()
        losses["plain loop"] = looped(suite, samples, epochs, steps, turn)
        seconds["plain loop"].append(time.perf_counter() - started)
        record = finish(Trainer(run_of(epochs, turn), data))
        assert record.status == "finished" and record.steps == epochs * steps, record.error
        seconds["ours"].append(record.train_seconds)
        losses["ours"] = statistics.mean(record.epochs[-1].train_loss.values())
    seen = sum(words.values()) * BATCH * epochs * steps
    title = f"{epochs} epochs of {steps} steps, {BATCH} sentences a language; one thread, {repeats} turns"
    shown = Table("training", "seconds", "words/s", "times the plain loop", "loss of the last epoch", title=title)
    for way, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(seconds["plain loop"], times, strict=True))
        shown.add_row(way, f"{min(times):.2f}", f"{seen / min(times):.0f}", f"{ratio:.2f}", f"{losses[way]:.3f}")
    Console(width=120).print(shown)


def samples_of(task: str, table: pa.Table) -> RaggedSamples:
    its = table.filter(pc.starts_with(table["id"], f"{task}/")).combine_chunks()
    rows, tags = its["input"].to_pylist(), its["label"].combine_chunks()
    labels = torch.from_numpy(tags.flatten().to_numpy().reshape(len(its), -1).copy())
    counts = (labels != MISSING_CLASS).sum(1)
    content = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8)
    size = len(content) // (2 * int(counts.sum()))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]) * 2 * size
    return RaggedSamples.of_bytes(content, offsets, size, {task: labels}, None)


def run_of(epochs: int, seed: int) -> Run:
    """The data set that it names is never prepared."""
    training = {"epochs": epochs, "batch_size": BATCH, "lr": RATE, "optimizer": "adamw", "evaluate_every": epochs}
    experiment = Experiment.model_validate(
        {
            "name": "tokens",
            "datasets": ["digits"],
            "methods": ["equal"],
            "floors": [],
            "seeds": [seed],
            "model": {"encoder": {"name": "token_layers", "hidden": HIDDEN}},
            "training": training,
        }
    )
    return next(experiment.runs({"digits": "tokens"}))


def looped(suite: TaskSuite, samples: dict[str, RaggedSamples], epochs: int, steps: int, seed: int) -> float:
    """The mean loss of the last epoch."""
    torch.manual_seed(seed)
    sizes = [suite.input_shape[1], *HIDDEN]
    layers = [part for a, b in itertools.pairwise(sizes) for part in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    below = torch.nn.Sequential(*layers)
    heads = torch.nn.ModuleDict({task.name: torch.nn.Linear(sizes[-1], task.outputs) for task in suite.tasks})
    optimizer = torch.optim.AdamW([*below.parameters(), *heads.parameters()], lr=RATE, weight_decay=0.0)
    sentences = {}
    for task, its in samples.items():
        counts = (its.targets[task] != MISSING_CLASS).sum(1)
        whole = its.inputs.float()
        sentences[task] = [(whole[row, :count], its.targets[task][row, :count].long())
                           for row, count in enumerate(counts.tolist())]  # fmt: skip
        del whole
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        orders = {task: itertools.cycle(torch.randperm(len(its)).tolist()) for task, its in sentences.items()}
        for _ in range(steps):
            loss = torch.zeros(())
            for task, order in orders.items():
                drawn = [sentences[task][next(order)] for _ in range(BATCH)]
                inputs = torch.nn.utils.rnn.pad_sequence([vectors for vectors, _ in drawn], batch_first=True)
                tags = torch.nn.utils.rnn.pad_sequence(
                    [tags for _, tags in drawn], batch_first=True, padding_value=MISSING_CLASS
                )
                scores = heads[task](below(inputs.flatten(0, 1)))
                loss = loss + torch.nn.functional.cross_entropy(scores, tags.flatten(), ignore_index=MISSING_CLASS)
            loss = loss / len(orders)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
    return total / steps


if __name__ == "__main__":
    main()
