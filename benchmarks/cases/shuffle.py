"""How well the order of the reader `stream` is shuffled, beside a full permutation.

A set is sorted by label in its files, the worst case: classes of equal size, one after the other. For each size of
block and window, means over epochs of

* rank r: Spearman's correlation of place in the file and place in the epoch (0 where nothing of the file is left),
* step / N: mean distance in the file between samples that follow each other (1/3 for a full permutation),
* reach / N: mean distance in the file between the first and the last sample of a batch in file order,
* chi²: of a batch's labels against equal shares, over its degrees of freedom (1 - (batch - 1)/(N - 1) expected where
  batches are drawn from the whole set; the larger, the fewer classes a batch has).

Example:
    python benchmarks/run.py shuffle --samples 200000 --blocks 256 1024 --windows 1 4 16 64
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from harness import Sheet

from mtlscale.data import EpochSampler, WindowSampler


def figures(sampler: EpochSampler, classes: int, epochs: int) -> Iterator[tuple[float, float, float, float]]:
    """The four numbers of each epoch."""
    (count,) = sampler.sizes.values()
    for epoch in range(epochs):
        batches = [step["all"].numpy() for step in sampler.epoch(epoch)]
        order = np.concatenate(batches)
        rank = float(np.corrcoef(order, np.arange(count))[0, 1])
        step = float(np.abs(np.diff(order)).mean()) / count
        full = [batch for batch in batches if len(batch) == sampler.batch_size]
        reach = float(np.mean([np.ptp(batch) for batch in full])) / count
        shares = np.stack([np.bincount(batch * classes // count, minlength=classes) for batch in full])
        expected = sampler.batch_size / classes
        chi2 = ((shares - expected) ** 2 / expected).sum(1).mean() / (classes - 1)
        yield rank, step, reach, float(chi2)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--blocks", type=int, nargs="+", default=[64, 256, 1024], help="samples of a block")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4, 16, 64], help="blocks of a window")


QUICK = {"samples": 20_000, "epochs": 1, "blocks": [256], "windows": [1, 16]}


def run(options: argparse.Namespace) -> None:
    count, batch = options.samples, options.batch
    torch.manual_seed(0)
    orders: dict[str, EpochSampler] = {"full permutation": EpochSampler({"all": count}, batch, 0)}
    for block in options.blocks:
        starts = {"all": np.append(np.arange(0, count, block), count)}
        for window in options.windows:
            name = f"{block} x {window} = {block * window}"
            orders[name] = WindowSampler(starts, batch, 0, window=window)

    sheet = Sheet(f"{count} samples sorted by {options.classes} classes, batches of {batch}", "block x window",
                  "|rank r|", "step / N", "reach / N", "chi²")  # fmt: skip
    for name, sampler in orders.items():
        epochs = np.array(list(figures(sampler, options.classes, options.epochs)))
        rank, others = np.abs(epochs[:, 0]).mean(), epochs[:, 1:].mean(0)
        sheet.row(name, *(f"{value:.3f}" for value in (rank, *others)))
    sheet.show()
