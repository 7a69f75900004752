"""How well the order of the reader `stream` is shuffled, beside a full permutation.

A set is sorted by label in its files, the worst case: classes of equal size, one after the other. For each size of
block and window, means over epochs of

* rank r: Spearman's correlation of place in the file and place in the epoch (0 where nothing of the file is left),
* step / N: mean distance in the file between samples that follow each other (1/3 for a full permutation),
* reach / N: mean distance in the file between the first and the last sample of a batch in file order,
* chi²: of a batch's labels against equal shares, over its degrees of freedom (1 - (batch - 1)/(N - 1) expected where
  batches are drawn from the whole set; the larger, the fewer classes a batch has).

Example:
    python benchmarks/shuffle.py --samples 200000 --blocks 256 1024 --windows 1 4 16 64
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch

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


def line(name: str, found: Iterator[tuple[float, float, float, float]]) -> None:
    epochs = np.array(list(found))
    rank, (step, reach, chi2) = np.abs(epochs[:, 0]).mean(), epochs[:, 1:].mean(0)
    print(f"  {name:34}{rank:9.3f}{step:10.3f}{reach:11.3f}{chi2:9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--blocks", type=int, nargs="+", default=[64, 256, 1024], help="samples of a block")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4, 16, 64], help="blocks of a window")
    options = parser.parse_args()
    count, batch = options.samples, options.batch
    print(f"{count} samples sorted by {options.classes} classes, batches of {batch}, {options.epochs} epochs\n")
    print(f"  {'block x window':34}{'|rank r|':>9}{'step / N':>10}{'reach / N':>11}{'chi²':>9}\n")
    torch.manual_seed(0)
    line("full permutation", figures(EpochSampler({"all": count}, batch, 0), options.classes, options.epochs))
    for block in options.blocks:
        starts = {"all": np.append(np.arange(0, count, block), count)}
        for window in options.windows:
            sampler = WindowSampler(starts, batch, 0, window=window)
            name = f"{block} x {window} = {block * window}"
            line(name, figures(sampler, options.classes, options.epochs))


if __name__ == "__main__":
    main()
