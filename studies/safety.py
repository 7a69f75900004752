"""Safety in training loss (Yue, Ye & Zhang, definition 6.3.3), a table under results/tables beside η.

A method is individually safe where no task's training loss is larger than that of single-task learning, and safe on
average where their mean is not. Both are taken of the parameters that are tested, against the baseline's run of the
same seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report.stats.statistics import half_width


def safety(records: Sequence[RunRecord], baseline: str) -> Iterator[str]:
    """Yield the table's lines; none where no method of DSMTL has a run beside the baseline's."""
    done = {(run.dataset, run.method, run.seed): run for run in records if run.status == "finished"}
    if not any(run.spec.get("architecture", {}).get("name", "").startswith("dsmtl") for run in records):
        return
    rows = []
    for dataset, method in dict.fromkeys((run.dataset, run.method) for run in records):
        if method == baseline:
            continue
        pairs = [
            (_losses(run), _losses(other))
            for (where, label, seed), run in done.items()
            if (where, label) == (dataset, method) and (other := done.get((dataset, baseline, seed))) is not None
        ]
        pairs = [(own, single) for own, single in pairs if own.keys() & single.keys()]
        if pairs:
            rows.append(f"| {dataset} | {method} | {_cells(pairs)} |")
    if rows:
        yield f"Safety in training loss against {baseline} of the same seed, at the parameters that are tested: the "
        yield "share of tasks whose loss is no larger, the seeds in which the mean over tasks is no larger, and that "
        yield f"mean as a share of {baseline}'s, in percent:\n"
        yield "| data set | method | tasks, % | seeds | mean loss |\n| --- | --- | ---: | ---: | ---: |"
        yield from rows


def _losses(run: RunRecord) -> dict[str, float]:
    values = run.metrics.get("train", {})
    return {task: found["loss"] for task, found in values.items() if "loss" in found}


def _cells(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> str:
    """Return the cells of a row: tasks that are safe, seeds that are safe on average, the ratio with its interval."""
    safe, averages, ratios = [], [], []
    for own, single in pairs:
        tasks = [task for task in own if task in single]
        safe += [own[task] <= single[task] for task in tasks]
        means = [float(np.mean([values[task] for task in tasks])) for values in (own, single)]
        averages.append(means[0] <= means[1])
        ratios.append(100.0 * means[0] / means[1])
    half = float(half_width(np.std(ratios, ddof=1), len(ratios))) if len(ratios) > 1 else np.nan
    mean = f"{np.mean(ratios):.1f}" if np.isnan(half) else f"{np.mean(ratios):.1f} ± {half:.1f}"
    return f"{100 * np.mean(safe):.0f} | {sum(averages)} of {len(averages)} | {mean}"
