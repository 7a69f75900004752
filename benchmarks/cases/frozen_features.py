"""What actors bring that hold a frozen backbone: Ray Data's beside a plain loop with as many threads.

    MTLSCALE_DATA=/data python benchmarks/run.py frozen_features images
    python benchmarks/run.py frozen_features images --source office_caltech10 --backbone resnet50 --weights resnet50.pth
    MTLSCALE_DATA=/data python benchmarks/run.py frozen_features words --checkpoint e5 --languages te vi

The plain loop is one process that holds the network, decodes a batch of pictures (or pads one of sentences to its
longest), and has torch's threads work on it. Ours are as many actors as that has threads, each with the network and one
thread; what starting them takes is counted. Both run in turns, so that other load meets them alike, and have to find
the same features. Pictures are those of Office-Caltech10, words those of treebanks, as pieces of a checkpoint's
tokenizer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from harness import Sheet, Times, local_ray, ratio, timed

from mtlscale.config import MISSING_CLASS, SPLITS, TaskSuite, build, named_files
from pipelines import PrepareContext, Prepared
from pipelines._images.backbones import BACKBONES, Backbone, framed
from pipelines._images.image_features import AT_ONCE, picture_features
from pipelines._sources.file_store import Store, read_file
from pipelines._texts.token_features import TokenFeatures, with_token_features
from pipelines.domains.office_caltech10 import DOMAINS

ROWS = 256  # of a block of sentences
Ways = dict[str, Callable[[], np.ndarray]]


def stores(source: Path) -> Store:
    """The pictures of all domains."""
    found = [build("datasets", "office_caltech10", {"features": "images", "domain": a, "target": b})
             for a, b in (DOMAINS[:2], DOMAINS[2:])]  # fmt: skip
    return Store(source, lambda name: any(pipeline.selects(name) for pipeline in found))


def ways_of_images(options: argparse.Namespace) -> tuple[Ways, dict[str, int]]:
    """The ways to the features of pictures, and how many pictures there are."""
    store = stores(options.source)
    names = store.names[:: max(1, len(store.names) // options.limit)] if options.limit else store.names
    weights = options.weights and named_files.with_content_hash(str(Path(options.weights).absolute()))
    backbone = Backbone(options.backbone, weights, options.image_size, "crop")

    def plain_loop() -> np.ndarray:
        network, found = backbone.build(), []
        torch.set_num_threads(options.threads)
        for start in range(0, len(names), AT_ONCE):
            raws = [read_file(str(store.root), store.location(name)) for name in names[start : start + AT_ONCE]]
            pixels = np.stack([framed(raw, backbone.image_size, backbone.frame)[0] for raw in raws])
            with torch.inference_mode():
                found.append(network.module(network.normalised(pixels)).numpy())
        return np.concatenate(found)

    def ours(engine: str) -> np.ndarray:
        pictures = [(name, store.files[name]) for name in names]
        work = PrepareContext(engine=engine)  # type: ignore[arg-type]
        return picture_features(store.root, {"all": pictures}, backbone, work, options.threads)["all"].values

    ways = {"plain loop": plain_loop, "Ray Data's actors": lambda: ours("ray"), "threads": lambda: ours("local")}
    return ways, {"images": len(names)}


def sentences(source: Path, checkpoint: Path, languages: tuple[str, ...], limit: int) -> tuple[TaskSuite, pa.Table]:
    """All sentences of the languages as pieces, in one table."""
    pipeline = build("datasets", "ud", {"languages": languages, "tokenizer": str(checkpoint), "limit": limit})
    prepared: Prepared = pipeline.prepare(pipeline.locate(source), PrepareContext())
    tables = [prepared.tables[split][task].rename_columns(["id", "input", "label"])
              for split in SPLITS for task in languages]  # fmt: skip
    return prepared.suite, pa.concat_tables(tables).combine_chunks()


def ways_of_words(options: argparse.Namespace) -> tuple[Ways, dict[str, int]]:
    """The ways to the features of words, and how many words and pieces there are."""
    suite, table = sentences(options.source, options.checkpoint, tuple(options.languages), options.limit)
    tags, pieces = (table[name].combine_chunks().flatten().to_numpy() for name in ("label", "input"))

    def in_order(features: pa.Table) -> np.ndarray:
        content = b"".join(features.sort_by("id")["input"].to_pylist())
        return np.frombuffer(content, np.float16).astype(np.float32)

    def plain_loop() -> np.ndarray:
        torch.set_num_threads(options.threads)
        encoder = build("encoders", "pretrained_layers", {"checkpoint": str(options.checkpoint), "hidden": [1]})
        function = TokenFeatures(suite, encoder, "label")
        return in_order(pa.concat_tables([function(table.slice(at, ROWS)) for at in range(0, len(table), ROWS)]))

    def ours() -> np.ndarray:
        work = replace(PrepareContext(), engine="ray", rows_per_block=ROWS)
        return in_order(with_token_features(table, suite, options.checkpoint, work)[0])

    counts = {"words": int((tags != MISSING_CLASS).sum()), "pieces": int((pieces != 0).sum())}
    return {"plain loop": plain_loop, "Ray Data's actors": ours}, counts


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("of", choices=("images", "words"))
    parser.add_argument("--source", type=Path, help="default: the set's folder in $MTLSCALE_DATA")
    parser.add_argument("--limit", type=int, default=0, help="pictures, or sentences of a part of a language; 0: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="turns")
    parser.add_argument("--backbone", choices=BACKBONES, default=BACKBONES[0])
    parser.add_argument("--weights", help="file of torchvision's weights")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--checkpoint", type=Path, help="folder of the language model")
    parser.add_argument("--languages", nargs="+", default=["te"])


QUICK = {"limit": 40, "image_size": 64}


def run(options: argparse.Namespace) -> None:
    if options.source is None:
        folder = "office_caltech10" if options.of == "images" else "ud"
        options.source = Path(os.environ.get("MTLSCALE_DATA", ""), folder)
    if not options.source.exists() or (options.of == "words" and options.checkpoint is None):
        sys.exit("no data: pass --source, or set MTLSCALE_DATA; words need --checkpoint, too")

    ways, counts = ways_of_images(options) if options.of == "images" else ways_of_words(options)
    times: Times = {way: [] for way in ways}
    found: dict[str, np.ndarray] = {}
    with local_ray(options.threads):
        for _ in range(options.repeats):
            for way, features in ways.items():
                seconds, found[way] = timed(features)
                times[way].append(seconds)

    title = ", ".join(f"{number} {what}" for what, number in counts.items())
    rates = [f"{what}/s" for what in counts]
    sheet = Sheet(f"{title}; {options.threads} threads, {options.repeats} turns",
                  "", "seconds", *rates, "times the plain loop", "largest difference")  # fmt: skip
    reference = found["plain loop"]
    for way in ways:
        middle, off = statistics.median(times[way]), np.abs(found[way] - reference).max() / np.abs(reference).max()
        each = [round(number / middle) for number in counts.values()]
        sheet.row(way, f"{middle:.1f}", *each, ratio(times, "plain loop", way), float(off))
    sheet.show()
