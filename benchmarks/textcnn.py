"""The TextCNN step against nn.Conv1d on the real token stream of 20 Newsgroups.

One step is forward and backward, gradients of the word vectors included: 300 dimensions, 100 filters of each of the
widths 3, 5, 7, 256 tokens. Both sides compute it from the same parameters and the same batch, one right after the
other; the ratio is the median over fresh batches. A batch holds random training documents of all four tasks, which is
the harder case: one task's documents have fewer distinct words. Where a target is missed, the profile of our step
follows. Where the two best windows of a filter in a document differ by less than float32 can tell, chance decides on
either side which one wins; these few get no gradient on both sides, so that the largest difference speaks of the rest.
With as many threads as cores, other load on the machine slows both sides, at every barrier between threads.

Example:
    python benchmarks/textcnn.py --source data/20newsgroups
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.encoders.text.textcnn import TextCNNModule
from pipelines import PrepareContext
from pipelines.text.newsgroups import Newsgroups

DIMENSIONS, FILTERS, WIDTHS = 300, 100, (3, 5, 7)
TARGETS = {(256, 1): 8.0, (64, 1): 4.5}  # (batch, threads) -> ratio
AGREEMENT = 1e-5
NEAR_TIE = 1e-6  # of the largest feature


@dataclass(frozen=True)
class Row:
    """One setting's medians, the largest difference between the two sides over all batches and tensors, and the share
    of maxima that are near ties."""

    batch: int
    threads: int
    conv1d: float
    ours: float
    ratio: float
    difference: float
    near_ties: float


def token_stream(source: Path) -> tuple[Tensor, TaskSuite]:
    """The training documents of all tasks, [N, 256]."""
    pipeline: Newsgroups = build("datasets", "newsgroups")
    prepared = pipeline.prepare(pipeline.locate(source), PrepareContext())
    rows = [
        table["input"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
        for table in prepared.tables["train"].values()
    ]
    return torch.from_numpy(np.concatenate(rows)).long(), prepared.suite


def conv1d_features(encoder: TextCNNModule, tokens: Tensor) -> Tensor:
    """The textbook TextCNN on the encoder's parameters."""
    embedded = encoder.embedding(tokens).transpose(1, 2)
    return torch.cat([conv(embedded).relu().max(dim=2).values for conv in encoder.convolutions], dim=1)


@torch.no_grad()
def near_ties(encoder: TextCNNModule, tokens: Tensor) -> Tensor:
    """Where the best window leads the second by less than rounding, [B, features]; the same words twice are no tie."""
    embedded = encoder.embedding(tokens).transpose(1, 2)
    ties = []
    for conv, width in zip(encoder.convolutions, WIDTHS, strict=True):
        values, starts = conv(embedded).topk(2, dim=2)  # [B, F, 2]
        windows = tokens.unfold(1, width, 1)[torch.arange(len(tokens))[:, None, None], starts]
        differ = (windows[:, :, 0] != windows[:, :, 1]).any(dim=2)
        ties.append(differ & (values[:, :, 0] - values[:, :, 1] < NEAR_TIE * values.max()))
    return torch.cat(ties, dim=1)


def timed_step(
    encoder: TextCNNModule, features: Callable[[Tensor], Tensor], tokens: Tensor, gradient: Tensor
) -> tuple[float, list[Tensor]]:
    """Seconds of one forward and backward; the features and all gradients."""
    encoder.zero_grad(set_to_none=True)
    start = time.perf_counter()
    found = features(tokens)
    found.backward(gradient)
    seconds = time.perf_counter() - start
    return seconds, [found.detach(), *(p.grad for p in encoder.parameters() if p.grad is not None)]


def largest_difference(ours: list[Tensor], right: list[Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, right, strict=True))


def compare(encoder: TextCNNModule, stream: Tensor, batch: int, threads: int, repeats: int) -> Row:
    torch.set_num_threads(threads)
    times: list[tuple[float, float]] = []
    differences, shares = [], []
    for _ in range(repeats + 1):
        tokens = stream[torch.randperm(len(stream))[:batch]]
        ties = near_ties(encoder, tokens)
        gradient = torch.randn(batch, encoder.features).masked_fill(ties, 0)
        slow, right = timed_step(encoder, lambda tokens: conv1d_features(encoder, tokens), tokens, gradient)
        fast, ours = timed_step(encoder, encoder, tokens, gradient)
        times.append((slow, fast))
        differences.append(largest_difference(ours, right))
        shares.append(float(ties.float().mean()))
    slow_times, fast_times = zip(*times[1:], strict=True)  # the first batch warms up
    return Row(
        batch=batch,
        threads=threads,
        conv1d=statistics.median(slow_times),
        ours=statistics.median(fast_times),
        ratio=statistics.median(slow / fast for slow, fast in times[1:]),
        difference=max(differences),
        near_ties=statistics.mean(shares),
    )


def profile(encoder: TextCNNModule, stream: Tensor, batch: int, threads: int) -> str:
    """Where our step spends its time, by operation."""
    torch.set_num_threads(threads)
    tokens = stream[torch.randperm(len(stream))[:batch]]
    gradient = torch.randn(batch, encoder.features)
    timed_step(encoder, encoder, tokens, gradient)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as result:
        timed_step(encoder, encoder, tokens, gradient)
    return result.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="folder that holds 20news-bydate.tar.xz")
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256], help="documents of a batch")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=7, help="batches of each setting, after one to warm up")
    parser.add_argument("--profile", action="store_true", help="profile our step even where the targets are met")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    try:
        stream, suite = token_stream(arguments.source)
    except UserError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    options = {"dimensions": DIMENSIONS, "filters": FILTERS, "widths": WIDTHS}
    encoder = build("encoders", "textcnn", options).build(suite)
    words = (stream != 0).sum(dim=1).float().mean()
    print(f"{len(stream)} documents, {words:.0f} words on average, vocabulary {suite.vocabulary_size}")
    print(f"torch {torch.__version__}, {DIMENSIONS} dimensions, {FILTERS} filters of widths {WIDTHS}\n")
    print("| batch | threads | nn.Conv1d, ms | ours, ms | ratio | target | largest relative difference | near ties |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for batch in arguments.batch:
        for threads in arguments.threads:
            row = compare(encoder, stream, batch, threads, arguments.repeats)
            target = TARGETS.get((batch, threads))
            print(
                f"| {batch} | {threads} | {1e3 * row.conv1d:.0f} | {1e3 * row.ours:.1f} | {row.ratio:.1f} "
                f"| {target or '–'} | {row.difference:.1e} | {row.near_ties:.4%} |",
                flush=True,
            )
            rows.append(row)
    for row in rows:
        if row.difference > AGREEMENT:
            print(f"\nbatch {row.batch}, {row.threads} threads: differs by more than {AGREEMENT:g}")
        if arguments.profile or row.ratio < TARGETS.get((row.batch, row.threads), 0):
            print(f"\nOur step, batch {row.batch}, {row.threads} threads:")
            print(profile(encoder, stream, row.batch, row.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
