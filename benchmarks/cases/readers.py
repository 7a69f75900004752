"""Whether readers agree to the last bit on the data of every shipped experiment that a machine without a GPU runs.

Each data set is prepared from `$MTLSCALE_DATA` (one whose files are not there is left out, by name). Then every reader
gives all the batches of a training epoch in its order, and validation and test from end to end, as the training step
gets them; the bytes are compared by their hash. Exit status 1 where a reader differs.

Example:
    MTLSCALE_DATA=/data python benchmarks/run.py readers --home /tmp/readers
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from harness import Sheet, say

from mtlscale.config import SPLITS, UserError, load_experiment, shipped
from mtlscale.data import EpochSampler, Samples, load_prepared
from mtlscale.data.readers.random_access import open_reader, placed
from mtlscale.execution.preparing.prepare import prepare

READERS = ("device", "memory", "mapped")
CPU = torch.device("cpu")


def folders(home: Path, asked: list[str]) -> dict[Path, tuple[str, int]]:
    """Prepared folder -> the data set in words, and the batch size of an experiment that uses it."""
    found: dict[Path, tuple[str, int]] = {}
    for name in asked or sorted(name for name in shipped() if not name.endswith("_full")):
        experiment = load_experiment(name)
        for dataset, seed in experiment.data().values():
            try:
                options = dataclasses.asdict(dataset.build(seed))
                folder = prepare(dataset.name, options, None, home)
            except UserError as error:
                say(f"left out: {name}, {dataset.label}: {str(error).splitlines()[0]}")
                continue
            found.setdefault(folder, (f"{dataset.label} ({name})", experiment.training.batch_size))
    return found


def batches(folder: Path, kind: str, size: int) -> Iterator[Samples]:
    """All batches a run would get of a reader, in their order."""
    reader, _ = open_reader(load_prepared(folder), kind, device=CPU, dtype=torch.float32)
    sampler = EpochSampler(reader.sizes("train"), size, seed=0)
    for step in sampler.epoch(1):
        for stream, index in step.items():
            yield placed(reader.take("train", stream, index), CPU, torch.float32)
    for split in SPLITS[1:]:
        for stream, count in reader.sizes(split).items():
            for index in torch.arange(count).split(size):
                yield placed(reader.take(split, stream, index), CPU, torch.float32)


def digest(folder: Path, kind: str, size: int) -> tuple[str, int]:
    """The hash of all bytes, and how many samples they are."""
    found, count = hashlib.sha256(), 0
    for samples in batches(folder, kind, size):
        weights = [] if samples.weights is None else [samples.weights]
        for tensor in (samples.inputs, *samples.targets.values(), *weights):
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(memoryview(tensor.contiguous().numpy()).cast("B") if tensor.numel() else b"")
        count += len(samples)
    return found.hexdigest(), count


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", type=Path, help="where prepared data are, and stay [default: a temporary folder]")
    parser.add_argument("--experiments", nargs="+", default=[], help="default: all that need no GPU")


QUICK = {"experiments": ["quickstart"]}


def run(options: argparse.Namespace) -> bool:
    sheet, same = Sheet("sha256 of what the training step gets", "data", "samples", *READERS), True
    with tempfile.TemporaryDirectory() as temporary:
        for folder, (name, size) in folders(options.home or Path(temporary), options.experiments).items():
            found = {kind: digest(folder, kind, size) for kind in READERS}
            same &= len(set(found.values())) == 1
            sheet.row(name, found["device"][1], *(found[kind][0][:12] for kind in READERS))
    sheet.show()
    say("all readers agree to the last bit" if same else "readers DIFFER")
    return same
