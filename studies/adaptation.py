"""What methods of adaptation reach on average over transfers, where the source chose the epoch and after the last step.

    mtlscale run office_caltech10_cpu --home HOME
    python studies/adaptation.py office_caltech10_cpu --home HOME

A transfer's score is the target's accuracy, the mean over seeds; the mean over transfers has a 95 % t-interval of the
gains over the reference, paired by transfer, with as many values as there are transfers, and a paired t-test,
Holm-corrected over the methods. Transfers share domains, so intervals and tests are, if anything, too sure. Tables in
Markdown: the means, and every transfer's score after the last step. Methods with several strengths have a column more
there, with the best strength of each transfer by its target: a bound in their favour, no result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mtlscale.config import UserError, load_experiment
from mtlscale.execution.finding.own_board import own_board
from mtlscale.records import Home, RunRecord
from mtlscale.report.stats.statistics import half_width, holm, t_test

SCORES = {"chosen by the source": "metrics", "last step": "last"}


def frame(records: Sequence[RunRecord], which: str) -> pd.DataFrame:
    """Transfers by methods: test scores, means over seeds; methods that finished on all of them."""
    rows = [
        (record.dataset, record.method, np.mean([of[record.main_metrics[task]] for task, of in test.items()]))
        for record in records
        if record.status == "finished" and (test := getattr(record, which).get("test"))
    ]
    scores = pd.DataFrame(rows, columns=["transfer", "method", "score"])
    order = list(dict.fromkeys(scores["method"]))
    found = scores.pivot_table(index="transfer", columns="method", values="score", aggfunc="mean", sort=False)
    return found[order].dropna(axis="columns")


def at_best(scores: pd.DataFrame) -> pd.DataFrame:
    """Transfers by methods that have columns for three strengths and more: the highest of each transfer."""
    columns = pd.Series({column: str(column).partition(" λ=")[0] for column in scores if " λ=" in str(column)})
    counts = columns.value_counts(sort=False)
    return pd.DataFrame(
        {
            f"{method}, its best λ": scores[columns.index[columns == method]].max(axis="columns")
            for method in counts.index[counts > 2]
        },
        index=scores.index,
    )


def tables(records: Sequence[RunRecord], reference: str) -> Iterator[str]:
    frames = {name: frame(records, which) for name, which in SCORES.items()}
    last = frames["last step"]
    seconds = pd.Series({m: np.mean([r.seconds for r in records if r.method == m]) for m in last})
    parts, headers = [], []
    for name, scores in frames.items():
        if reference not in scores:
            raise UserError(f"{reference} did not finish on every transfer; run the experiment to its end")
        gained = scores.sub(scores[reference], axis="rows").drop(columns=reference)
        widths = half_width(gained.std(ddof=1).to_numpy(), np.full(gained.shape[1], len(gained)))
        chances = holm(t_test(gained.to_numpy()))
        told = {
            method: (f"{gain:+.2f} ± {width:.2f}", f"{p:.2g}")
            for method, gain, width, p in zip(gained, gained.mean(), widths, chances, strict=True)
        }
        parts.append((scores.mean(), told))
        headers += [name, "gain", "p"]
    yield f"Mean over {len(last)} transfers, gains over {reference} ± 95 % over transfers, Holm-corrected p.\n"
    yield f"| method | {' | '.join(headers)} | s/run |"
    yield f"| --- |{' ---: |' * (len(headers) + 1)}"
    for method in last.mean().sort_values(ascending=False).index:
        cells = [
            cell
            for means, told in parts
            for cell in (f"{means.get(method, np.nan):.2f}", *told.get(method, ("–", "–")))
        ]
        yield f"| {method} | {' | '.join(cells)} | {seconds[method]:.1f} |"
    yield "\nAfter the last step:\n"
    last = last.join(at_best(last))
    yield f"| transfer | {' | '.join(last)} |"
    yield f"| --- |{' ---: |' * last.shape[1]}"
    for transfer, row in last.iterrows():
        yield f"| {transfer} | {' | '.join(f'{value:.1f}' for value in row)} |"
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="name or file")
    parser.add_argument("--home", type=Path, required=True, help="of its runs")
    given = parser.parse_args()
    experiment = load_experiment(given.experiment)
    records = own_board(experiment, Home.at(given.home)).records
    if not records:
        raise UserError(f"no runs of {given.experiment} in {given.home}; start them with `mtlscale run`")
    print("\n".join(tables(records, str(experiment.reference))))
    total = sum(record.seconds for record in records)
    print(f"{len(records)} runs, {total / 60:.1f} minutes of one worker in all.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"adaptation: {error}")
