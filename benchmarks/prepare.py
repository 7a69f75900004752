"""How fast text becomes token ids: our preparation beside one-process `datasets.map` doing the same work.

Both sides start with the same documents in memory (read from the archive once, and timed apart), split them into words,
count the vocabulary of the training documents and turn words into ids; the ids are compared. `datasets.map` runs the
usual Python tokeniser in batches, without its cache on disk. Then the whole of `prepare` from archive to published
folder, with each engine, and a second call from a fresh process.

Example:
    python benchmarks/prepare.py --data data
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from mtlscale.config import build
from mtlscale.data.readers.prepared import SPECIAL_WORDS
from mtlscale.execution.cluster.cluster import session
from mtlscale.execution.preparing.prepare import prepare
from pipelines import Engine, PrepareContext, TableFunction
from pipelines._texts.token_ids import UNKNOWN, TextOptions, encode_samples
from pipelines.text import amazon, newsgroups

WORD = re.compile(r"[^\W_]+")
PREPARE_TARGET, AGAIN_TARGET = 60.0, 2.0  # seconds

AGAIN = """
import sys
from pathlib import Path
from mtlscale.execution.preparing.prepare import prepare
prepare(sys.argv[1], {}, Path(sys.argv[2]), Path(sys.argv[3]))
"""


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - started, result


def read(name: str, source: Path) -> tuple[pa.Table, TableFunction, Callable[[Any], list[str]]]:
    """The labelled documents, our tokeniser of a table and the plain one of a document."""
    pipeline = build("datasets", name)
    located = pipeline.locate(source)
    if name == "newsgroups":
        messages, _ = pipeline.read(located, PrepareContext())
        ours = partial(newsgroups.tokenise, strip=())
        return messages, ours, lambda raw: WORD.findall(raw.decode("latin-1").lower())
    reviews, _ = pipeline.read(located, PrepareContext())
    return pipeline.samples(reviews), amazon.tokenise, str.split


def with_datasets(
    samples: pa.Table, words_of: Callable[[Any], list[str]], options: TextOptions
) -> dict[str, list[int]]:
    """id -> token ids, by `datasets.map` in this process."""
    import datasets

    datasets.disable_caching()
    datasets.disable_progress_bars()
    column = "raw" if "raw" in samples.column_names else "text"
    tokens = datasets.Dataset(samples).map(
        lambda batch: {"tokens": [words_of(document) for document in batch[column]]},
        batched=True,
        remove_columns=[column],
        keep_in_memory=True,
    )
    counter: Counter[str] = Counter()
    for split, words in zip(tokens["split"], tokens["tokens"], strict=True):
        if split == "train":
            counter.update(words)
    ranked = sorted(counter.items(), key=lambda item: (-item[1], item[0].encode()))
    kept = [word for word, count in ranked if count >= options.min_count][: options.vocabulary - len(SPECIAL_WORDS)]
    ids = {word: number for number, word in enumerate(kept, start=len(SPECIAL_WORDS))}

    def encode(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = []
        for words in batch["tokens"]:
            row = [ids.get(word, UNKNOWN) for word in words[: options.length]] or [UNKNOWN]
            rows.append(row + [0] * (options.length - len(row)))
        return {"input": rows}

    encoded = tokens.map(encode, batched=True, remove_columns=["tokens"], keep_in_memory=True)
    return dict(zip(encoded["id"], encoded["input"], strict=True))


def with_us(samples: pa.Table, tokenise: TableFunction, options: TextOptions, work: PrepareContext) -> pa.Table:
    return encode_samples(samples, tokenise, options, work)[0]


def compare(name: str, source: Path, repeats: int) -> None:
    seconds, (samples, tokenise, words_of) = timed(read, name, source)
    pipeline = build("datasets", name)
    options = TextOptions(pipeline.length, pipeline.vocabulary, pipeline.min_count)
    count = len(samples)
    print(f"\n{name}: {count} labelled documents, {seconds:.1f} s to read")
    print(f"  {'words, vocabulary, ids':34}{'seconds':>9}{'documents/s':>13}{'ratio':>8}")

    def row(label: str, seconds: float, ratio: float = 1.0) -> None:
        print(f"  {label:34}{seconds:9.2f}{count / seconds:13.0f}{ratio:8.1f}")

    theirs: list[float] = []
    ours: dict[Engine, list[float]] = {"local": [], "ray": []}
    with_us(samples, tokenise, options, PrepareContext(engine="ray"))  # workers start and import
    for _ in range(repeats):  # one right after the other, so that other load meets all
        seconds, expected = timed(with_datasets, samples, words_of, options)
        theirs.append(seconds)
        for engine, times in ours.items():
            seconds, encoded = timed(with_us, samples, tokenise, options, PrepareContext(engine=engine))
            times.append(seconds)
            got = encoded["input"].combine_chunks().flatten().to_numpy().reshape(count, -1)
            assert np.array_equal(got, np.array([expected[id] for id in encoded["id"].to_pylist()]))
    base = float(np.median(theirs))
    row("datasets.map, one process", base)
    for label, times in (("ours, in process", ours["local"]), ("ours, Ray Data, workers warm", ours["ray"])):
        median = float(np.median(times))
        row(label, median, base / median)


def whole(name: str, source: Path) -> None:
    """Archive to published folder, starting Ray included, and again."""
    for engine in ("local", "ray"):
        with tempfile.TemporaryDirectory() as home:
            seconds, _ = timed(prepare, name, {}, source, Path(home), engine=engine)
            verdict = "met" if seconds <= PREPARE_TARGET else "MISSED"
            print(f"  {name}: prepare, engine {engine}: {seconds:.1f} s (target {PREPARE_TARGET:.0f} s {verdict})")
            again = [sys.executable, "-c", AGAIN, name, str(source), home]
            seconds, _ = timed(subprocess.run, again, check=True)
            verdict = "met" if seconds <= AGAIN_TARGET else "MISSED"
            print(f"  {name}: again, in a new process: {seconds:.2f} s (target {AGAIN_TARGET:.0f} s {verdict})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with fdu_mtl and 20newsgroups")
    parser.add_argument("--datasets", nargs="+", default=["amazon", "newsgroups"], choices=["amazon", "newsgroups"])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    sources = {name: arguments.data / build("datasets", name).folder for name in arguments.datasets}
    print("whole preparations")
    for name, source in sources.items():
        whole(name, source)
    with session():
        print(f"\nRay with {ray.cluster_resources()['CPU']:.0f} CPUs, medians of {arguments.repeats}")
        for name, source in sources.items():
            compare(name, source, arguments.repeats)


if __name__ == "__main__":
    main()
