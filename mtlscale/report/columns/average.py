"""The average over tasks: at the chosen epoch, after the last one, over a part of test, and as a sum of errors."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.stats.frames import value_frame
from mtlscale.report.tables.table import LAST_STEP

_NUMBERS = "mean over tasks of the main metric: at the chosen epoch, after the last one, over a part of test"


@family(
    Definition(
        key="average",
        title="average",
        better="as the metric",
        header=lambda table: "average ± seeds" if table.over_items else "average",
        help=lambda table: (
            f"mean over tasks{table.shared_unit}, at the epoch chosen on validation"
            + (" of the source" if table.domains else "")
        ),
        shown=10,
        stored=100,
        compact=20,
        compact_title=lambda table: f"{table.split} {next(iter(table.main_metrics.values()), '')}",
        mlflow=lambda table: f"{table.split}.mean",
        manual="The main metric of every task (the line below the table names it), mean over tasks, on test, at the "
        "epoch chosen on validation. ± is half the 95 % interval over seeds: how far other seeds would move it. It "
        "needs three seeds.",
        numbers=_NUMBERS,
    ),
    Definition(
        key="last",
        title="last epoch",
        better="as the metric",
        header=lambda table: LAST_STEP if table.domains else "last epoch",
        help=lambda table: f"mean over tasks{table.shared_unit}, after the last epoch",
        detail=lambda table: not table.domains,
        shown=110,
        shown_on=lambda table: 20 if table.domains else 110,
        stored=102,
        mlflow=lambda table: "last_step.test.mean" if table.domains else "",
        define="Test score after the last step of training, which papers on adaptation between domains report: nothing "
        "chose it. The average is at the epoch that is best on held-out samples of the source; no label of the target "
        "enters either.",
        term=LAST_STEP,
        manual="The average after the last epoch. If it is much worse than `average`, training went on too long. For "
        f"adaptation from one domain to another `{LAST_STEP}` replaces it: the score after the last step, which papers "
        "report. `average` is at the epoch that held-out source samples chose. Neither uses a label of the target.",
        numbers=_NUMBERS,
    ),
    Definition(
        key="part",
        title="test_PART",
        better="as the metric",
        header=lambda table: table.part,
        help=lambda table: f"the same mean over {table.part}, a part of test without what training saw",
        shown=40,
        stored=116,
        manual="The average over a part of test, such as one without what training saw.",
        numbers=_NUMBERS,
    ),
    Definition(
        key="total_error",
        title="total",
        better="lower",
        explain="sum over tasks of the error in percent",
        detail=True,
        applies=lambda table: len(table.tasks) > 1,
        shown=131,
        stored=114,
        manual="The sum over tasks of the error in percent.",
        numbers="sum of the errors",
    ),
)
def averages(frame: Frame) -> pd.DataFrame:
    """Average over tasks; different metrics have no mean."""
    scores = pd.DataFrame(np.nan, frame.runs.index, ["average", "last", "part", "total_error"])
    if len(set(frame.main.values())) == 1:  # different metrics have no mean
        after = value_frame([record.last.get(frame.split, {}) for record in frame.finished], frame.metrics)
        scores["average"], scores["last"] = frame.task_mean(frame.values), frame.task_mean(after)
        scores["part"] = frame.task_mean(frame.values_of(frame.part))
    if set(frame.main.values()) == {"error"}:
        scores["total_error"] = scores["average"] * len(frame.main)
    return scores
