"""How long the page of thousands of runs takes to make, how large it is, and when a browser can be used with it.

    python benchmarks/run.py page --datasets 10 --methods 50 --seeds 10 --output /tmp/page

The records are made up (one row of numbers each, with epochs for the first seeds), the rest is what `mtlscale report`
does: the leaderboard from records, and the page from both. With Chromium and what tests/browser/package.json names,
`--browser` opens the page and sorts a table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import ROOT, say

from mtlscale.records import Epoch, RunRecord
from mtlscale.report.leaderboard import Leaderboard

SEEDS_WITH_EPOCHS = 10


def made_up(datasets: int, methods: int, seeds: int, tasks: int, epochs: int) -> list[RunRecord]:
    """Records like those of a real experiment: methods differ a little, seeds more, and some runs fail."""
    random = np.random.default_rng(0)
    names = ["stl", "equal", *(f"method_{number:02}" for number in range(2, methods))]
    labels = [f"task_{task}" for task in range(tasks)]
    return [
        _run(f"set_{dataset}", method, seed, labels, 80 + 0.05 * place + random.normal(0, 0.5, tasks), epochs, random)
        for dataset in range(datasets)
        for place, method in enumerate(names)
        for seed in range(seeds)
    ]


def _run(
    dataset: str,
    method: str,
    seed: int,
    tasks: list[str],
    values: np.ndarray,
    epochs: int,
    random: np.random.Generator,
) -> RunRecord:
    failed = random.random() < 0.01
    metrics = {task: {"accuracy": float(value)} for task, value in zip(tasks, values, strict=True)}
    course = [
        Epoch(
            epoch=number,
            train_loss={task: 1 / number + 0.1 * random.random() for task in tasks},
            val={task: {"accuracy": float(value) - 9 / number} for task, value in zip(tasks, values, strict=True)},
            seconds=1.0,
            weights={task: 1 / len(tasks) + 0.01 * random.random() for task in tasks},
        )
        for number in range(1, epochs + 1)
    ]
    ended = {"test": metrics, "val": metrics}
    return RunRecord(
        run_id=f"{dataset}-{method}-{seed}",
        experiment="many",
        dataset=dataset,
        method=method,
        seed=seed,
        status="failed" if failed else "finished",
        error="worker died" if failed else None,
        spec={"dataset": {"name": dataset}, "architecture": {"name": "hps"}, "balancer": {"name": method},
              "training": {"epochs": epochs, "lr": 1e-3, "batch_size": 64, "optimizer": "adam"}, "seed": seed},
        fingerprint="f00d",
        higher_is_better={"accuracy": True, "loss": False},
        main_metrics=dict.fromkeys(tasks, "accuracy"),
        metrics={} if failed else ended,
        last={} if failed else ended,
        chosen_epoch=epochs,
        epochs=course if seed < SEEDS_WITH_EPOCHS else [],
        seconds=float(random.uniform(10, 400)),
        train_seconds=10.0,
        steps=1000,
        samples=64000,
        peak_memory_mb=float(random.uniform(300, 900)),
        parameters=int(random.integers(10_000, 2_000_000)),
        versions={"torch": "2.13.0"},
        hardware="2 CPUs",
    )  # fmt: skip


def in_browser(path: Path) -> dict[str, float]:
    """Milliseconds from the first byte until a table has been sorted, and how many figures came out."""
    with tempfile.TemporaryDirectory() as out:
        command = ["node", str(ROOT / "tests/browser/time.mjs"), "/usr/bin/chromium", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=out)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    for name, usual in (("datasets", 10), ("methods", 50), ("seeds", 10), ("tasks", 6), ("epochs", 20)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--output", type=Path, help="folder to leave the page in")
    parser.add_argument("--browser", action="store_true", help="open the page in Chromium, too")


QUICK = {"datasets": 2, "methods": 4, "seeds": 3}


def run(options: argparse.Namespace) -> None:
    records = made_up(options.datasets, options.methods, options.seeds, options.tasks, options.epochs)
    wall, used = time.perf_counter(), time.process_time()
    board = Leaderboard.from_records(records)
    board_seconds = time.process_time() - used
    text = board.report(records, title="many", overall=board.overall()).text("html")
    wall, used = time.perf_counter() - wall, time.process_time() - used
    size = len(text.encode()) / 1e6
    say(f"{len(records)} runs: {wall:.1f} s ({used:.1f} s of CPU, of them {board_seconds:.1f} s the leaderboard), "
        f"{size:.2f} MB", runs=len(records), seconds=wall, cpu=used, board=board_seconds, mb=size)  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "many.html"
        path.write_text(text, encoding="utf-8")
        if options.browser:
            found = in_browser(path)
            say(", ".join(f"{name} {value:,.0f}" for name, value in found.items()), **found)
