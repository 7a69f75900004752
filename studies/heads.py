"""How well AASPC's controller chooses: every head of two cells trained by itself, and what searches find among them.

    python studies/heads.py --home HOME --source DIR                      # amazon -> webcam and dslr -> amazon
    python studies/heads.py --home HOME --transfers A-W --seeds 0 --searches 2

Office-Caltech10 on frozen features. Every one of the 288 heads is trained with
population correlation for 250 steps, the same for each seed of `--seeds`; its score is the target's accuracy after the
last step, which nothing may read that searches. Its two rewards, `loss` (minus the whole training loss of the last
epoch) and `source` (minus the source's part), are of the same runs. Searches share their weights between heads and draw
one head an epoch: a controller with either reward and two learning rates, and draws by lot; 50 epochs of 25 steps, the
steps of five heads trained by themselves. What a search found is the head of its last epoch (for draws by lot the one
with the best validation on the source), and its rank is among the 288, 1 the best. Beside them five heads by lot,
trained by themselves, of which the best reward or the best source validation is taken: exact expectations over all
draws. Tables in Markdown, a picture of rewards against scores. Runs that are over are not run again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

from mtlscale.config import load_experiment
from mtlscale.execution.finding.own_records import own_records
from mtlscale.nas.search.head_cells import decoded, head_count, numbered
from mtlscale.records import Home, RunRecord, write_atomically
from mtlscale.report.charts.canvas import new_figure, save, style

DOMAINS = {"A": "amazon", "C": "caltech10", "D": "dslr", "W": "webcam"}
CELLS, EACH = 2, 5  # heads that cost as much as a search
REWARDS = ("loss", "source")
RATES = (3.5e-4, 2e-2)


def experiment(transfers: Sequence[str], seeds: Sequence[int], searches: int) -> tuple[dict[str, object], ...]:
    """The files of the heads by themselves and of the searches."""
    datasets = []
    for transfer in transfers:
        source, target = (DOMAINS[letter] for letter in transfer.split("-"))
        datasets.append(
            {"name": "office_caltech10", "label": transfer, "options": {"domain": source, "target": target}}
        )
    common = {
        "datasets": datasets,
        "floors": [],
        "model": {"encoder": {"name": "bottleneck"}},
        "tracking": {"enabled": False},
    }
    training = {"steps_per_epoch": 25, "batch_size": 128, "optimizer": "sgd", "lr": 0.01, "momentum": 0.9}
    training |= {"weight_decay": 5e-4, "checkpoint_seconds": 60}

    def method(label: str, **knobs: object) -> dict[str, object]:
        part = {"name": "aaspc", "cells": CELLS, **knobs}
        return {"label": label, "architecture": part, "objective": "population_correlation"}

    heads = [method(f"head {number}", search="fixed", head=number) for number in range(head_count(CELLS))]
    found = [method(f"controller, {reward}, lr {lr:g}", reward=reward, lr=lr) for reward in REWARDS for lr in RATES]
    found.append(method("by lot", search="random"))
    return (
        {"name": "heads", **common, "methods": heads, "seeds": list(seeds), "training": {**training, "epochs": 10}},
        {
            "name": "heads_searches",
            **common,
            "methods": found,
            "seeds": list(range(searches)),
            "training": {**training, "epochs": 10 * EACH},
        },
    )


def run(content: dict[str, object], home: Path, source: str | None) -> list[RunRecord]:
    """The records of the experiment, its runs made where they are not there."""
    path = home / f"{content['name']}.yaml"
    home.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "mtlscale.cli", "run", str(path), "--home", str(home)]
    if status := subprocess.run([*command, *(["--source", source] if source else [])], check=False).returncode:
        raise SystemExit(status)
    return [r for r in own_records(load_experiment(path), Home.at(home)).records if r.status == "finished"]


class Truth:
    """Of one transfer, by head: the score, both rewards, and source validation; means over seeds."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        values: dict[str, dict[int, list[float]]] = {name: {} for name in ("score", *REWARDS, "validation")}
        for record in records:
            head, (task,) = int(record.method.split()[1]), record.main_metrics
            last = record.epochs[-1]
            of_source = -last.train_loss[task]
            for name, value in {
                "score": record.last["test"][task]["accuracy"],
                "loss": float(last.traces["reward"]),
                "source": of_source,
                "validation": record.last["val"][task]["accuracy"],
            }.items():
                values[name].setdefault(head, []).append(value)
        heads = sorted(values["score"])
        if len(heads) < head_count(CELLS):
            raise SystemExit(f"heads: {len(heads)} of {head_count(CELLS)} heads finished; run it again")
        self.of = {name: np.array([np.mean(by[head]) for head in heads]) for name, by in values.items()}
        self.watched = np.array([decoded(numbered(head, CELLS)).watched for head in heads])

    def rank(self, head: int) -> float:
        """1 for the best score; of equals the mean."""
        return float(stats.rankdata(-self.of["score"])[head])

    def correlation(self, name: str, place: int | None = None) -> float:
        """Spearman's, of a reward with the score; place: of heads that are watched there."""
        some = np.full(len(self.watched), True) if place is None else self.watched == place
        return float(stats.spearmanr(self.of[name][some], self.of["score"][some]).statistic)

    def best_of(self, name: str, draws: int) -> tuple[float, float]:
        """Expected score and rank of the best by `name` of so many different heads by lot."""
        order = np.argsort(-self.of[name], kind="stable")
        total = len(order)
        chances = np.array([comb(total - 1 - place, draws - 1) for place in range(total)]) / comb(total, draws)
        ranks = stats.rankdata(-self.of["score"])
        return float(chances @ self.of["score"][order]), float(chances @ ranks[order])


def tables(transfer: str, truth: Truth, searches: Iterable[RunRecord]) -> str:
    scores = truth.of["score"]
    lines = [
        f"### {transfer}\n",
        f"{len(scores)} heads: target {scores.min():.2f} to {scores.max():.2f} %, median {np.median(scores):.2f}.\n",
        "| what is known | correlation with score | watched at cell 1 | at cell 2 | best of 5 by lot: score | rank |",
        "|---|---|---|---|---|---|",
    ]
    for name in (*REWARDS, "validation"):
        score, rank = truth.best_of(name, EACH)
        told = [truth.correlation(name), *(truth.correlation(name, place) for place in range(CELLS))]
        lines.append(f"| {name} | {' | '.join(f'{value:+.2f}' for value in told)} | {score:.2f} | {rank:.0f} |")
    lines += [
        "",
        "| search | seeds | rank of what it found | its score alone | of the search itself |",
        "|---|---|---|---|---|",
    ]
    by_method: dict[str, list[RunRecord]] = {}
    for record in searches:
        by_method.setdefault(record.method, []).append(record)
    for method, records in by_method.items():
        heads = [found_head(record) for record in records]
        ranks, alone = [truth.rank(head) for head in heads], [scores[head] for head in heads]
        own = [record.metrics["test"] if method == "by lot" else record.last["test"] for record in records]
        achieved = np.mean([next(iter(metrics.values()))["accuracy"] for metrics in own])
        told = ", ".join(f"{rank:.0f}" for rank in sorted(ranks))
        lines.append(
            f"| {method} | {len(records)} | {np.mean(ranks):.0f} ({told}) | {np.mean(alone):.2f} | {achieved:.2f} |"
        )
    return "\n".join([*lines, ""])


def found_head(record: RunRecord) -> int:
    """Of the chosen epoch of draws by lot, of the last epoch of a controller."""
    epoch = record.chosen_epoch if record.method == "by lot" else len(record.epochs)
    assert epoch is not None
    return int(record.epochs[epoch - 1].traces["head"])


def picture(truths: Mapping[str, Truth], path: Path) -> None:
    """Every head's rewards against its score; colours say which cell is watched."""
    with style():
        figure = new_figure(8.4, 3.2 * len(truths))
        grid = figure.subplots(len(truths), len(REWARDS), squeeze=False)
        for row, (transfer, truth) in zip(grid, truths.items(), strict=True):
            for axis, name in zip(row, REWARDS, strict=True):
                for place in range(CELLS):
                    some = truth.watched == place
                    axis.scatter(
                        truth.of[name][some], truth.of["score"][some], s=9, label=f"watched at cell {place + 1}"
                    )
                axis.set_title(f"{transfer}: Spearman {truth.correlation(name):+.2f}")
                axis.set_xlabel(f"reward: {name}")
                axis.set_ylabel("target accuracy, %")
        grid[0][0].legend(frameon=False)
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--source", help="folder of the set; default: the one in $MTLSCALE_DATA")
    parser.add_argument(
        "--transfers", default="A-W,D-A", help="comma-separated; letters of amazon, caltech10, dslr, webcam"
    )
    parser.add_argument("--seeds", default="0", help="of the heads by themselves, comma-separated")
    parser.add_argument("--searches", type=int, default=5, help="seeds of each search")
    given = parser.parse_args()
    transfers, seeds = given.transfers.split(","), [int(seed) for seed in given.seeds.split(",")]
    alone, searching = experiment(transfers, seeds, given.searches)
    searches = run(searching, given.home, given.source)
    heads = run(alone, given.home, given.source)
    truths = {transfer: Truth(r for r in heads if r.dataset == transfer) for transfer in transfers}
    page = "\n".join(tables(name, truth, (r for r in searches if r.dataset == name)) for name, truth in truths.items())
    print(page)
    write_atomically(Home.at(given.home).experiment("heads") / "page.md", page.encode())
    picture(truths, given.home / "heads.png")
    print(given.home / "heads.png")


if __name__ == "__main__":
    main()
