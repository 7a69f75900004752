"""Which methods beat tuned equal weighting: run, power, analysis, null boards and pages of the standing study.

    python studies/standing_study.py run --home HOME                       # suite by suite; may be cut off and resumed
    python studies/standing_study.py cost --home HOME                      # time of a step of every row, trained alone
    python studies/standing_study.py power --home HOME                     # seeds that show one point, and their cost
    python studies/standing_study.py write results/2026-11-27 --home HOME --by NAME
    python studies/standing_study.py analyse results/2026-11-27            # tables in Markdown; --picture FILE draws
    python studies/standing_study.py analyse results/2026-11-27 --without parkinsons
    python studies/standing_study.py null results/2026-11-27 --boards 2000 # errors where there are no differences

The experiment (suites, methods, budget, seeds) is experiments/standing_study.yaml, the analysis beside this file in
standing_study.yaml. `run` leaves out a suite whose data are not there, by name, and goes on. `write` takes the suites
with all runs of all methods, names the others, and refuses a folder of results whose data were others; a row that was
run anew replaces the old one, which is kept in superseded.csv. `null` permutes the labels of the methods within every
suite and seed and does the whole analysis again: exit status 1 where more than 5 of 100 boards have a win or a loss
that is not there (and two standard errors of the simulation). Of a home, whose runs keep their predictions on test,
suites also have the ensemble of the three methods that are best on validation.

Seeds are trained together, so the seconds of a run are a share of those of several. `cost` times some steps of every
row by itself, in this process, and may be cut off and resumed. With its times `analyse` and `write` know which epochs
end within the seconds that the reference takes for all of its own, and choose among these on validation.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import ArrayLike, NDArray

from mtlscale.api import run as run_experiment
from mtlscale.api.submission.write import contribute
from mtlscale.cli.options import only
from mtlscale.config import Experiment, Run, Task, TaskSuite, UserError, find_experiment, load_experiment, read_settings
from mtlscale.config.registry.components import component, names
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.finding.own_board import own_board
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.stopping import Interrupted
from mtlscale.metrics import TaskMetrics, higher_is_better
from mtlscale.records import Epoch, Home, Metrics, RunRecord, write_atomically
from mtlscale.records.submission_schema import EXPERIMENT, Problem, is_results, read_provenance, records_of_results
from mtlscale.report.charts.chart import PLAIN, Axis, Chart, Dots, Level, Line, Mark, Panel
from mtlscale.report.charts.colors import line_styles
from mtlscale.report.charts.vega import save
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.overall.takeaway import sentence
from mtlscale.report.stats.hierarchical import hierarchical
from mtlscale.report.stats.item_intervals import differences
from mtlscale.report.stats.pareto import pareto
from mtlscale.report.stats.statistics import half_width, holm, t_test
from mtlscale.training import Selection, TaskPredictions, Trainer, mean_prediction, read_predictions

ANALYSIS = Path(__file__).with_suffix(".yaml")
SUPERSEDED, RUNS, SETTINGS = "superseded.csv", "runs_{}.csv", "settings.csv"
COSTS, SECONDS, BENCHEVAL = "step_costs.csv", "equal_seconds.csv", "bencheval.csv"
TIMED = 5  # epochs of a row that are timed, behind one that is not; the fastest counts
MOST_ERROR = 0.05
FEWEST_SUITES = 4  # of a rank correlation
ENSEMBLE, MEMBERS = "ensemble", 3
TREES = ("forest", "boosting")  # floors that are shown beside the best row
TICKS = (-50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10)  # points of the picture
Boards = NDArray[np.float64]  # gains [seeds, suites, methods], or with boards in front


@dataclass(frozen=True)
class Study:
    """The finished runs of the suites that are complete, and the analysis that was fixed for them."""

    analysis: dict[str, Any]
    board: Leaderboard
    methods: list[str]  # that are tested, in the experiment's order
    missing: dict[str, str]  # suite -> why it is left out
    traits: pd.DataFrame  # of each suite, as `traits_of` has them
    seconds: pd.DataFrame = field(default_factory=pd.DataFrame)  # of each suite and row, as `equal_seconds` has them

    @property
    def suites(self) -> list[str]:
        return list(self.board.tables)

    def scores(self, methods: Sequence[str]) -> Boards:
        """Return Δ main [seeds, suites, methods] in percent; NaN where a run did not finish."""
        frames = [
            table.runs.pivot(index="seed", columns="method", values="delta_main")
            for table in self.board.tables.values()
        ]
        return np.stack([frame.reindex(columns=list(methods)).to_numpy(float) for frame in frames], axis=1)

    @property
    def gains(self) -> Boards:
        """The gains [seeds, suites, methods] over the reference, in points."""
        return self.scores(self.methods) - self.scores([self.analysis["reference"]])


def study_of(records: Iterable[RunRecord], analysis: dict[str, Any], rows: Sequence[tuple[str, str, int]]) -> Study:
    """Return the study of these records, of the suites that have a record of every planned row."""
    known = {(record.dataset, record.method, record.seed): record for record in records}
    missing: dict[str, str] = {}
    for suite in dict.fromkeys(suite for suite, _, _ in rows):
        lacking = [row for row in rows if row[0] == suite and row not in known]
        if lacking:
            missing[suite] = f"{len(lacking)} of {sum(row[0] == suite for row in rows)} runs are not done"

    complete = [known[row] for row in rows if row[0] not in missing]
    complete += [record for key, record in known.items() if key[1] == ENSEMBLE and key[0] not in missing]
    if not complete:
        raise UserError(f"no suite is complete ({'; '.join(f'{suite}: {why}' for suite, why in missing.items())})")
    board = Leaderboard.from_records(complete, baseline="stl", reference=analysis["reference"])
    left_out = {analysis["reference"], *analysis["untested"]}
    methods = [method for method in dict.fromkeys(method for _, method, _ in rows) if method not in left_out]
    return Study(analysis, board, methods, missing, traits_of(complete, analysis))


def ensembles(records: Iterable[RunRecord], home: Home) -> Iterator[RunRecord]:
    """Yield, for each suite and seed, a record of the mean prediction of the methods that are best on validation.

    They are those of the least mean rank over tasks, floors among them, by the mean over seeds. A suite whose runs keep
    no predictions, because it is large, has none.
    """
    by_suite: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.status == "finished":
            by_suite.setdefault(record.dataset, []).append(record)

    for suite, of_suite in by_suite.items():
        signs = {task: 1 if higher_is_better(name) else -1 for task, name in of_suite[0].main_metrics.items()}
        scores = pd.DataFrame(
            [{"method": record.method}
             | {task: sign * record.metrics["val"][task][record.main_metrics[task]] for task, sign in signs.items()}
             for record in of_suite]
        )  # fmt: skip
        ranks = scores.groupby("method", sort=False).mean().rank(ascending=False).mean(axis=1)
        best = list(ranks.sort_values(kind="stable").index[:MEMBERS])

        for seed in sorted({record.seed for record in of_suite}):
            members = [record for record in of_suite if record.seed == seed and record.method in best]
            kept = [read_predictions(home.run(record.run_id)) for record in members]
            if len(members) == len(best) and all(kept):
                test = {task: _measured(kept, task, metric) for task, metric in members[0].main_metrics.items()}
                named = {
                    "method": ENSEMBLE,
                    "run_id": f"{ENSEMBLE} {suite} {seed}",
                    "metrics": {"test": test},
                    "last": {},
                }
                yield members[0].model_copy(update=named | {"items": None})


def _measured(kept: Sequence[dict[str, TaskPredictions]], task: str, metric: str) -> dict[str, float]:
    """Return the metric of the mean prediction for a task."""
    entries = [predictions[task] for predictions in kept]
    measure = TaskMetrics(replace(entries[0].task, metrics=(metric,), group=None))
    measure.update(mean_prediction(entries[0].task, [entry.predictions for entry in entries]), entries[0].labels)
    return measure.compute()


def traits_of(records: Sequence[RunRecord], analysis: dict[str, Any]) -> pd.DataFrame:
    """Return what might decide whether balancing helps, from runs that the study has anyway: a row for each suite.

    `conflict %` is 100 (1 - cosine) between the gradient of the analysis' method `conflict` and the plain mean, over
    steps and seeds; pcgrad, for one, changes a gradient only where tasks disagree. `loss ratio` is the largest task's
    training loss by the smallest's where the reference ended, `weights a task` its shared parameters by its tasks.
    """
    rows = []
    for record in records:
        if record.status != "finished" or record.method not in (analysis["conflict"], analysis["reference"]):
            continue
        row: dict[str, Any] = {"suite": record.dataset, "tasks": len(record.main_metrics)}
        if record.method == analysis["conflict"]:
            row["conflict %"] = 100 * (1 - record.survival.get("gradient_to_equal", math.nan))
        else:
            losses = [metrics["loss"] for metrics in record.metrics.get("train", {}).values() if "loss" in metrics]
            row["loss ratio"] = max(losses) / max(min(losses), 1e-12) if losses else math.nan
            row["weights a task"] = record.shared_parameters / len(record.main_metrics)
        rows.append(row)
    columns = ["tasks", "conflict %", "loss ratio", "weights a task"]
    return pd.DataFrame(rows, columns=["suite", *columns]).groupby("suite", sort=False)[columns].mean()


def equal_seconds(study: Study, records: Iterable[RunRecord], home: Home, costs: pd.DataFrame) -> pd.DataFrame:
    """Return what is left of the gains on validation in the seconds that the reference takes for all of its epochs.

    A row per suite and method that `costs` has: the `milliseconds` of a step alone, the `epochs` that end within these
    seconds (at least until the first evaluation; a cheaper method gets no more than it has), and the gain on validation
    over all epochs and `within` these. Epochs keep no scores on test, which is looked at once.

    Args:
        costs: Columns suite, method and milliseconds.
    """
    reference = study.analysis["reference"]
    milliseconds = costs.set_index(["suite", "method"])["milliseconds"]
    boards: dict[str, list[RunRecord]] = {"gain": [], "within": []}
    allowed: dict[tuple[str, str], int] = {}
    for record in records:
        key, of_reference = (record.dataset, record.method), (record.dataset, reference)
        epochs = home.epochs(record.run_id)
        if not {key, of_reference} <= set(milliseconds.index) or record.status != "finished" or not epochs:
            continue
        share = len(epochs) * milliseconds[of_reference] / milliseconds[key]
        allowed[key] = min(len(epochs), int(share * (1 + 1e-9)))
        for column, limit in (("gain", len(epochs)), ("within", allowed[key])):
            boards[column].append(_on_validation(record, epochs, limit))
    if not allowed:
        return pd.DataFrame()

    frame = pd.DataFrame({"milliseconds": milliseconds, "epochs": pd.Series(allowed)}).dropna()
    for column, changed in boards.items():
        board = Leaderboard.from_records(changed, baseline="stl", reference=reference)
        gains = pd.DataFrame(mean(replace(study, board=board).gains), index=list(board.tables), columns=study.methods)
        frame[column] = gains.stack().reindex(frame.index)
    return frame.rename_axis(["suite", "method"])


def _on_validation(record: RunRecord, epochs: Sequence[Epoch], limit: int) -> RunRecord:
    """Return a record whose metrics are those on validation, at the best of the epochs up to the limit."""
    tasks = tuple(
        Task(name=task, loss="mse", outputs=1, metrics=(metric,), scale=record.deviations.get(task, 1.0))
        for task, metric in record.main_metrics.items()
    )
    suite = TaskSuite(name=record.dataset, tasks=tasks, inputs="shared", input_kind="vector", input_shape=(1,))
    evaluated = [epoch for epoch in epochs if epoch.val]

    selection, chosen = Selection(), dict[str, Metrics]()
    for epoch in [epoch for epoch in evaluated if epoch.epoch <= limit] or evaluated[:1]:
        rule = record.spec["training"]["selection"]
        for group in selection.choose(epoch.epoch, epoch.val, suite, rule, bool(record.chosen_epochs)):
            chosen[group] = epoch.val
    test = {task: chosen[task if record.chosen_epochs else ""][task] for task in record.main_metrics}
    return record.model_copy(update={"metrics": {"test": test}, "last": {}, "items": None})


def planned(experiment: Experiment) -> list[tuple[str, str, int]]:
    return [
        (dataset.label, method.label, seed)
        for dataset in experiment.datasets
        for method in experiment.methods_of(dataset)
        for seed in experiment.seeds
    ]


def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means over the first axis of what is not NaN; NaN where nothing is."""
    count = (~np.isnan(values)).sum(axis=0)
    return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)


def deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviations over the first axis, likewise; NaN below two values."""
    count = (~np.isnan(values)).sum(axis=0)
    squares = np.nansum((values - mean(values)) ** 2, axis=0)
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)


# -- tests ---------------------------------------------------------------------------------------------------------


def tested(gains: Boards) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return adjusted p-values of every suite and method [suites, methods], and over suites [methods].

    Gains are [seeds, suites, methods], or [seeds, suites, methods, boards] with one result for each board.
    """
    suites, methods, *boards = gains.shape[1:]
    cells = np.moveaxis(t_test(gains).reshape(suites * methods, *boards), 0, -1)
    adjusted = np.moveaxis(holm(cells), -1, 0).reshape(suites, methods, *boards)
    overall = np.moveaxis(holm(np.moveaxis(t_test(mean(gains)), 0, -1)), -1, 0)
    return adjusted, overall


def null_errors(study: Study, boards: int, seed: int = 0) -> tuple[float, float, float]:
    """Return the share of null boards with any claim on a suite, over suites, and of either kind.

    The labels of the methods, the reference among them, are permuted within every suite and seed.
    """
    rng = np.random.default_rng(seed)
    scores = study.scores([study.analysis["reference"], *study.methods])
    claims = []
    for start in range(0, boards, 100):
        count = min(100, boards - start)
        boards_of_scores = np.repeat(scores[..., None], count, axis=3)
        permuted = rng.permuted(boards_of_scores, axis=2)
        for suite, there in enumerate((~np.isnan(scores)).any(axis=0)):
            if not there.all():  # a suite that is without some rows
                permuted[:, suite] = boards_of_scores[:, suite]
                permuted[:, suite, there] = rng.permuted(permuted[:, suite, there], axis=1)
        cells, overall = tested(permuted[:, :, 1:] - permuted[:, :, :1])
        claims.append(
            np.stack(
                [
                    (cells < study.analysis["level_suites"]).any(axis=(0, 1)),
                    (overall < study.analysis["level_overall"]).any(axis=0),
                ]
            )
        )
    found = np.concatenate(claims, axis=1)
    return float(found[0].mean()), float(found[1].mean()), float(found.any(axis=0).mean())


def seeds_for(deviation: float, analysis: dict[str, Any], tests: int, most: int = 10_000) -> int:
    """Return the seeds with which a paired t-test at the first step of Holm's correction shows the difference."""
    from scipy import stats

    level = analysis["level_suites"] / tests
    for count in range(3, most):
        critical = stats.t.isf(level / 2, count - 1)
        shift = analysis["difference"] / max(deviation, 1e-9) * math.sqrt(count)
        if stats.nct.sf(critical, count - 1, shift) >= analysis["power"]:
            return count
    return most


def detectable(deviation: float, analysis: dict[str, Any], tests: int, seeds: int) -> float:
    """Return the smallest difference that so many seeds show with the power asked for."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        enough = seeds_for(deviation, {**analysis, "difference": middle}, tests, seeds + 1) <= seeds
        low, high = (low, middle) if enough else (middle, high)
    return high


# -- tables --------------------------------------------------------------------------------------------------------


def kind_of(method: str) -> str:
    """Return what a method changes: sharing, or how the balancer of its label sees the tasks."""
    name = re.split(r"[ (]", method)[0]
    if name in names("balancers"):
        needs = component("balancers", name).needs
        return {"losses": "losses", "gramian": "gradients' Gramian", "validation": "validation"}.get(needs, "gradients")
    return "sharing"


def markdown(frame: pd.DataFrame) -> str:
    head = [str(frame.index.name), *map(str, frame.columns)]
    rows = [[str(index), *map(str, row)] for index, row in zip(frame.index, frame.to_numpy(), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows))


def method_table(study: Study) -> pd.DataFrame:
    """Return one row per method, the highest mean gain first."""
    analysis, gains = study.analysis, study.gains
    cells, overall = tested(gains)
    means = mean(gains)  # [suites, methods]
    signs = np.where(cells < analysis["level_suites"], np.sign(means), 0)
    posterior = [hierarchical(list(gains[:, :, index].T), analysis["rope"]) for index in range(gains.shape[2])]

    every = study.scores([analysis["reference"], *study.methods])
    ranks = pd.DataFrame(-mean(every)).rank(axis=1).mean().to_numpy()
    seconds = np.exp(mean(_log_steps(study)))  # the geometric mean over suites
    fronts = pareto(seconds, np.append(0.0, mean(means)))

    wins = (overall < analysis["level_overall"]) & (mean(means) > 0)
    wins &= np.array([found.better >= analysis["sure"] for found in posterior])
    frame = pd.DataFrame(
        {
            "kind": [kind_of(method) for method in study.methods],
            "gain": mean(means),
            "± suites": half_width(deviation(means), (~np.isnan(means)).sum(axis=0)),
            "better": (signs > 0).sum(axis=0),
            "same": ((signs == 0) & ~np.isnan(means)).sum(axis=0),
            "worse": (signs < 0).sum(axis=0),
            "mean rank": ranks[1:],
            "p overall": overall,
            "P better": [found.better for found in posterior],
            "P same": [found.same for found in posterior],
            "P worse": [found.worse for found in posterior],
            "step ×": seconds[1:],
            "front": np.where(fronts[1:], "yes", ""),
            "win": np.where(wins, "yes", ""),
        },
        index=pd.Index(study.methods, name="method"),
    )
    for column, title in (("gain", "gain, validation"), ("within", "in equal seconds, validation")):
        if len(study.seconds):
            frame[title] = study.seconds[column].groupby("method").mean().reindex(study.methods)
    return frame.sort_values("gain", ascending=False, kind="stable")


def _log_steps(study: Study) -> NDArray[np.float64]:
    """Return the logarithms [suites, methods] of step times as ratios to the reference, the reference first.

    They are those of runs alone where these are known, else a run's share of those that were trained together.
    """
    columns = [study.analysis["reference"], *study.methods]
    if len(study.seconds):
        alone = np.log(study.seconds["milliseconds"].unstack().reindex(index=study.suites, columns=columns).to_numpy())
        return alone - alone[:, :1]
    frames = [
        table.runs.groupby("method")["step_seconds"].median().reindex(columns) for table in study.board.tables.values()
    ]
    return np.array([np.log(frame / frame.iloc[0]) for frame in frames])


def suite_table(study: Study) -> pd.DataFrame:
    """Return one row per suite: its size, what it can show, and what was found."""
    gains = study.gains
    cells, _ = tested(gains)
    means = mean(gains)
    tests = int((~np.isnan(means)).sum())
    rows_of_suites = {method for table in study.board.tables.values() for method in table.rows.index}
    floors = [floor for floor in study.analysis["untested"] if floor != "constant" and floor in rows_of_suites]
    rows = {}
    for index, (suite, table) in enumerate(study.board.tables.items()):
        spread = _typical(gains[:, index])
        signs = np.where(cells[index] < study.analysis["level_suites"], np.sign(means[index]), 0)
        base = study.scores([study.analysis["reference"], *floors])[:, index]
        rows[suite] = {
            "tasks": len(table.tasks),
            "metric": table.main_metrics[table.tasks[0]],
            "seeds": len(gains),
            "σ of gains": spread,
            "detectable": detectable(spread, study.analysis, tests, len(gains)),
            "seeds for 1 point": seeds_for(spread, study.analysis, tests),
            "better": int((signs > 0).sum()),
            "worse": int((signs < 0).sum()),
            "equal − stl": float(mean(base[:, 0])),
            **{f"{floor} − stl": float(mean(base[:, 1 + place])) for place, floor in enumerate(floors)},
            "best": f"{study.methods[int(np.nanargmax(means[index]))]} {np.nanmax(means[index]):+.2f}",
            "failed runs": len(table.failures),
        }
    return pd.DataFrame(rows).T.rename_axis("suite")


def floor_table(study: Study) -> pd.DataFrame:
    """Return, for each suite with trees as floors, how far they are ahead of the best trained row.

    The best row is that of the best mean on test, chosen after the fact, which is in its favour. Differences are of the
    mean over tasks of the main metric, in its unit; positive is the floor ahead. Half their 95 % intervals are over
    seeds and over the items of the test split, paired in both.
    """
    rows: dict[str, dict[str, Any]] = {}
    for suite, table in study.board.tables.items():
        sign = 1 if higher_is_better(table.main_metrics[table.tasks[0]]) else -1
        by_seed = table.runs.pivot(index="seed", columns="method", values="average")
        trained = by_seed.reindex(columns=[study.analysis["reference"], *study.methods]).mean()
        best = str((sign * trained).idxmax())
        over_items = differences(table.runs, best)
        for floor in (floor for floor in TREES if floor in by_seed):
            ahead = sign * (by_seed[floor] - by_seed[best])
            row = rows.setdefault(suite, {"best row": best, "its mean": float(trained[best])})
            row |= {
                floor: float(by_seed[floor].mean()),
                f"{floor} − best": float(ahead.mean()),
                f"{floor}: ± seeds": float(half_width(np.array(ahead.std()), len(ahead))),
                f"{floor}: ± items": float(over_items["difference_items"].get(floor, math.nan)),
            }
    return pd.DataFrame(rows).T.rename_axis("suite")


def _typical(gains: NDArray[np.float64]) -> float:
    """Return the median over methods of the standard deviation over seeds."""
    return float(np.nanmedian(deviation(gains)))


def form_table(study: Study) -> pd.DataFrame:
    """Return what the cheap form of each rule, at the representation, gains and costs over the exact one.

    A row per rule, and one of the rules' mean: over the suites that have both forms, in points.
    """
    ending = study.analysis["cheap_form"]
    forms = study.analysis["cheap_forms"] | {m.removesuffix(ending): m for m in study.methods if m.endswith(ending)}
    places = {method: place for place, method in enumerate(study.methods)}
    pairs = {rule: (places[rule], places[form]) for rule, form in forms.items() if {rule, form} <= places.keys()}
    if not pairs:
        return pd.DataFrame()

    means, steps = mean(study.gains), _log_steps(study)[:, 1:]
    exact, cheap = (list(column) for column in zip(*pairs.values(), strict=True))
    differences = means[:, cheap] - means[:, exact]  # [suites, rules]
    differences = np.column_stack([differences, mean(differences.T)])
    ratios = steps[:, cheap] - steps[:, exact]
    return pd.DataFrame(
        {
            "suites": (~np.isnan(differences)).sum(axis=0),
            "cheap − exact": mean(differences),
            "± suites": half_width(deviation(differences), (~np.isnan(differences)).sum(axis=0)),
            "lowest": np.nanmin(differences, axis=0),
            "highest": np.nanmax(differences, axis=0),
            "step, cheap / exact": np.exp(np.append(mean(ratios), np.nanmean(ratios))),
        },
        index=pd.Index([*pairs, "mean of the rules"], name="rule"),
    )


def kind_table(study: Study) -> pd.DataFrame:
    """Return mean gains by kind of method [kinds, suites], in points."""
    kinds = np.array([kind_of(method) for method in study.methods])
    means = mean(study.gains)
    rows = {kind: np.nanmedian(means[:, kinds == kind], axis=1) for kind in dict.fromkeys(kinds)}
    return pd.DataFrame(rows, index=study.suites).T.rename_axis("kind (median over methods)")


def when_table(study: Study) -> pd.DataFrame:
    """Return Spearman's rank correlation over suites of each trait with the gains of each kind, and its p-value.

    Exploratory: no family of tests has it, and p-values are not corrected.
    """
    from scipy import stats

    kinds = kind_table(study)
    traits = study.traits.reindex(study.suites)
    traits["stl - equal"] = -mean(study.scores([study.analysis["reference"]]))[:, 0]

    def cell(trait: str, kind: str) -> str:
        x, y = traits[trait].to_numpy(float), kinds.loc[kind].to_numpy(float)
        known = np.isfinite(x) & np.isfinite(y)
        if known.sum() < FEWEST_SUITES or np.ptp(x[known]) == 0 or np.ptp(y[known]) == 0:
            return ""
        found = stats.spearmanr(x[known], y[known])
        return f"{found.statistic:+.2f} (p {found.pvalue:.2g})"

    cells = {kind: [cell(trait, kind) for trait in traits] for kind in kinds.index}
    return pd.DataFrame(cells, index=pd.Index(traits.columns, name="trait of a suite"))


def gain_table(study: Study) -> pd.DataFrame:
    """Return gains [methods, suites] with half their 95 % interval over seeds; a star where Holm's test rejects."""
    gains = study.gains
    cells, _ = tested(gains)
    means, halves = mean(gains), half_width(deviation(gains), len(gains))
    text = [
        [
            "–" if np.isnan(m) else f"{m:+.2f} ± {h:.2f}{'*' if p < study.analysis['level_suites'] else ''}"
            for m, h, p in zip(*row, strict=True)
        ]
        for row in zip(means.T, halves.T, cells.T, strict=True)
    ]
    return pd.DataFrame(text, columns=study.suites, index=pd.Index(study.methods, name="method"))


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.map(lambda value: f"{value:.3g}" if isinstance(value, float) else value)


def tables(study: Study) -> str:
    overall = study.board.overall(study.analysis["rope"])
    parts = ["## Methods", markdown(rounded(method_table(study))), "## Suites", markdown(rounded(suite_table(study)))]
    if len(floors := floor_table(study)):
        parts += ["## Trees beside the best row", markdown(rounded(floors.fillna("–")))]
    parts += ["## By kind of method", markdown(rounded(kind_table(study)))]
    if len(forms := form_table(study)):
        parts += ["## Both forms of a gradient", markdown(rounded(forms))]
    parts += ["## When balancing helps", markdown(rounded(study.traits)), markdown(when_table(study))]
    parts += ["## Gains", markdown(gain_table(study))]
    if overall is not None:
        parts.append(f"## Ranks\n\n{sentence(overall)}")
    parts += [f"Left out: {suite} ({why})." for suite, why in study.missing.items()]
    return "\n\n".join(parts)


def picture(study: Study, path: Path) -> Path:
    """Draw the gain on every suite as a dot, and the mean over suites with its 95 % interval in its kind's colour."""
    frame, means = method_table(study)[::-1], mean(study.gains)
    of_method = dict(zip(study.methods, means.T, strict=True))
    kinds, labels = line_styles(list(dict.fromkeys(frame["kind"][::-1]))), [str(method) for method in frame.index]
    dots = [(float(place), name) for name in labels for place in _place(of_method[name]) if not np.isnan(place)]
    marks: list[Mark] = [
        Level(at=0.0, axis="x", look=PLAIN),
        Dots(x=[place for place, _ in dots], y=[name for _, name in dots], size=2.5, opacity=0.7),
    ]
    for kind, rows in frame.groupby("kind", sort=False):
        for name, values in rows.iterrows():
            ends = _place(values["gain"] + np.array([-1, 1]) * values["± suites"])
            marks.append(Line(x=ends, y=[name, name], look=kinds[kind], hover=""))
        means_of_kind = _place(rows["gain"].to_numpy(float))
        marks.append(Dots(x=means_of_kind, y=list(rows.index), looks=kinds[kind], legend=kind, size=3.5))

    low, high = np.nanmin(means), np.nanmax(means)
    ticks = {float(_place(tick)): f"{tick:g}" for tick in TICKS if low <= tick <= high}
    x = Axis(title="points of Δ (10 seeds); grey: one suite, coloured: the mean over suites", ticks=ticks)
    title = f"Gain over tuned equal weighting, {len(study.suites)} suites"
    panel = Panel(marks=marks, x=x, y=Axis(names=labels))
    height = 1.2 + 0.17 * len(frame)
    return save([Chart(panels=[panel], title=title, width=7.2, height=height, legend="right")], path)


def _place(gains: ArrayLike) -> NDArray[np.float64]:
    """Return places on an axis that is linear near zero and logarithmic beyond a few points."""
    return np.arcsinh(np.asarray(gains, dtype=float) / 2)


# -- commands ------------------------------------------------------------------------------------------------------


def run(experiment: Experiment, options: argparse.Namespace) -> int:
    """Run suite by suite; one whose data are not there is left out by name."""
    for dataset in experiment.datasets:
        if options.dataset and dataset.label not in options.dataset:
            continue
        part = only(experiment, options.only, [dataset.label])
        try:
            results = run_experiment(part, home=options.home, whole=experiment)
        except UserError as error:
            print(f"{dataset.label} is left out: {error}", flush=True)
            continue
        print(f"{dataset.label}: {sum(record.dataset == dataset.label for record in results.records)} runs", flush=True)
    return 0


def cost(experiment: Experiment, options: argparse.Namespace) -> int:
    """Time the steps of every row alone, suite by suite, on one thread, where that was not done before."""
    torch.set_num_threads(1)
    home = Home.at(options.home)
    path = home.experiment(experiment.name) / COSTS
    rows = _read_csv(path)
    known = {(row["suite"], row["method"]) for row in rows}
    for dataset in experiment.datasets:
        if options.dataset and dataset.label not in options.dataset:
            continue
        part = only(experiment, options.only, [dataset.label])
        trained = [
            m.label for m in part.methods_of(dataset) if not component("architectures", m.architecture.name).fitted
        ]
        missing = [label for label in trained if (dataset.label, label) not in known]
        if not missing:
            continue
        try:
            data = prepare_data(part, home, None, download=False)
        except UserError as error:
            print(f"{dataset.label} is left out: {error}", flush=True)
            continue
        prepared = load_prepared(data.folders[dataset.prepared(part.seeds[0])])
        runs = [run for run in part.runs(data.fingerprints) if run.seed == part.seeds[0]]
        timed = {run.method: _milliseconds(run, prepared) for run in runs if run.method in missing}
        rows += [{"suite": dataset.label, "method": method, "milliseconds": each} for method, each in timed.items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_csv(path, rows)
        print(f"{dataset.label}: {len(timed)} rows", flush=True)
    return 0


def _milliseconds(run: Run, data: PreparedData) -> float:
    """Return the processor's time for a step, of the fastest epoch; other work on the machine does not count."""
    epochs = TIMED + 2  # the last one is evaluated
    run = run.tuned({"training.epochs": epochs, "training.evaluate_every": epochs})
    training, times = Trainer(run, data).train(), []
    next(training)
    for _ in range(TIMED):
        started = time.process_time()
        next(training)
        times.append(time.process_time() - started)
    return round(1e3 * min(times) / (run.training.steps_per_epoch or 1), 4)


def power(experiment: Experiment, analysis: dict[str, Any], home: Home) -> int:
    """Print what the runs that there are, of few methods and seeds, say of the seeds needed."""
    records = [record for record in own_board(experiment, home).records if record.status == "finished"]
    left_out = {analysis["reference"], *analysis["untested"], "stl"}
    labels = [method.label for dataset in experiment.datasets for method in experiment.methods_of(dataset)]
    tests = sum(label not in left_out - {"stl"} for label in labels)
    rows = {}
    for suite in dict.fromkeys(record.dataset for record in records):
        of_suite = [record for record in records if record.dataset == suite]
        table = Leaderboard.from_records(of_suite, baseline="stl", reference=analysis["reference"]).tables[suite]
        scores = table.runs.pivot(index="seed", columns="method", values="delta_main")
        if analysis["reference"] not in scores or len(scores) < 3:
            continue
        pilots = [method for method in scores if method not in left_out]
        spread = _typical(scores[pilots].sub(scores[analysis["reference"]], axis=0).to_numpy(float))
        seeds = seeds_for(spread, analysis, tests)
        cost = table.runs.groupby("method")["seconds"].mean().mean() * len(experiment.methods) / 60
        rows[suite] = {
            "pilot methods": len(pilots),
            "pilot seeds": len(scores),
            "σ of gains": spread,
            "seeds for 1 point": seeds,
            "minutes": cost * seeds,
            f"detectable with {len(experiment.seeds)}": detectable(spread, analysis, tests, len(experiment.seeds)),
        }
    if not rows:
        raise UserError(f"{home.root} has no three seeds of {analysis['reference']} and another method; run a pilot")
    print(markdown(rounded(pd.DataFrame(rows).T.rename_axis("suite"))))
    return 0


def null(study: Study, boards: int) -> int:
    """Print the family-wise errors."""
    suites, overall, either = null_errors(study, boards)
    allowed = MOST_ERROR + 2 * math.sqrt(MOST_ERROR * (1 - MOST_ERROR) / boards)
    print(f"{boards} null boards, {len(study.suites)} suites, {len(study.methods)} methods; share with a false claim:")
    print(f"on a suite {suites:.4f}, over suites {overall:.4f}, any {either:.4f}; at most {MOST_ERROR}, "
          f"{'met' if either <= allowed else 'MISSED'}")  # fmt: skip
    return int(either > allowed)


def write(experiment: Experiment, study: Study, options: argparse.Namespace) -> int:
    """Write the dated suite and the page."""
    kept = tuple(dataset for dataset in experiment.datasets if dataset.label in study.suites)
    part = experiment.model_copy(update={"datasets": kept})
    settings = dict(read_settings(find_experiment(experiment.name)))
    settings["datasets"] = [
        entry for entry, dataset in zip(settings["datasets"], experiment.datasets, strict=True) if dataset in kept
    ]
    folder: Path = options.folder
    old = _former(folder)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        new = Path(name, "results")
        contribute(part, settings, Home.at(options.home), new, by=options.by)
        _check_data(folder, new)
        records = records_of_results(new)
        superseded = [*_superseded(folder), *_rows(record for key, record in old.items() if key not in _keys(records))]
        for suite in study.suites:
            _write_csv(new / RUNS.format(suite), _rows(record for record in records if record.dataset == suite))
        _write_csv(new / SETTINGS, _settings(records))
        _write_csv(new / BENCHEVAL, bencheval(records))
        if len(study.seconds):
            _write_csv(new / SECONDS, study.seconds.reset_index().to_dict("records"))
        if superseded:
            _write_csv(new / SUPERSEDED, superseded)
        write_atomically(new / "README.md", f"# {experiment.description}\n\n{tables(study)}\n".encode())
        picture(study, new / "gains.png")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(new, folder)
    print(f"{folder}: {len(study.suites)} suites, {len(records)} runs, {len(superseded)} superseded")
    for suite, why in study.missing.items():
        print(f"left out: {suite} ({why})")
    return 0


def _seconds(
    experiment: Experiment, study: Study, records: Sequence[RunRecord], options: argparse.Namespace
) -> pd.DataFrame:
    """Return the frame of `equal_seconds`: of the folder that is analysed, or of the home."""
    if options.command == "analyse" and options.folder is not None:
        path = options.folder / SECONDS
        return pd.read_csv(path, index_col=["suite", "method"]) if path.is_file() else pd.DataFrame()
    home = Home.at(options.home)
    path = home.experiment(experiment.name) / COSTS
    if not path.is_file():
        print(f"no times of steps alone: `cost --home {options.home}` measures them", file=sys.stderr)
        return pd.DataFrame()
    known = [record for record in records if record.dataset in study.suites and record.method != ENSEMBLE]
    return equal_seconds(study, known, home, pd.read_csv(path))


def _former(folder: Path) -> dict[str, RunRecord]:
    return {record.run_id: record for record in records_of_results(folder)} if is_results(folder) else {}


def _keys(records: Iterable[RunRecord]) -> set[str]:
    return {record.run_id for record in records}


def _superseded(folder: Path) -> list[dict[str, Any]]:
    return _read_csv(folder / SUPERSEDED)


def _check_data(folder: Path, new: Path) -> None:
    """Raise `UserError` if a suite has other data than in the folder that is there."""
    if not is_results(folder):
        return
    before, after = read_provenance(folder), read_provenance(new)
    if isinstance(before, Problem) or isinstance(after, Problem):
        raise UserError(f"{folder}: {before if isinstance(before, Problem) else after}")
    for suite, fingerprint in before.data.items():
        if after.data.get(suite, fingerprint) != fingerprint:
            raise UserError(
                f"{suite} has changed since {folder} was written (fingerprint {after.data[suite][:12]}, there "
                f"{fingerprint[:12]}): it is another suite; give it another label, or begin a new folder"
            )


def _rows(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    return [
        {
            "suite": record.dataset,
            "method": record.method,
            "seed": record.seed,
            "run_id": record.run_id,
            "status": record.status,
            "chosen_epoch": record.chosen_epoch,
            "seconds": round(record.seconds, 3),
            "parameters": record.parameters,
            **{
                task: repr(record.metrics.get("test", {}).get(task, {}).get(metric, math.nan))
                for task, metric in record.main_metrics.items()
            },
        }
        for record in records
    ]


def _settings(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Return the settings that the search has chosen, one row per suite, method and setting."""
    chosen = {(record.dataset, record.method): record.trial for record in records}
    return [
        {"suite": suite, "method": method, "setting": key, "value": value}
        for (suite, method), trial in chosen.items()
        for key, value in trial.items()
    ]


def bencheval(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Return the finished runs as bencheval, the engine of TabArena's leaderboards, reads them.

    The error is the mean over tasks: 1 less what is higher where better, else the error as it is, of targets that were
    divided by their deviation.
    The seconds are those of training and validation, a share where seeds were trained together.
    """

    def error(record: RunRecord, task: str, metric: str) -> float:
        value = record.metrics["test"][task][metric]
        return 1 - value / 100 if record.higher_is_better[metric] else value

    return [
        {
            "method": record.method,
            "task": record.dataset,
            "seed": record.seed,
            "metric_error": sum(error(record, *main) for main in record.main_metrics.items())
            / len(record.main_metrics),
            "time_train_s": round(record.seconds, 3),
            "metric": record.shared_metric or "",
        }
        for record in records
        if record.status == "finished"
    ]


def _read_csv(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))) if path.is_file() else []


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, buffer.getvalue().encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "cost", "power", "analyse", "null", "write"))
    parser.add_argument("folder", type=Path, nargs="?", help="dated results; analyse and null read a home without it")
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--dataset", action="append", help="of run and cost: this suite, and others so named")
    parser.add_argument("--only", action="append", help="of run and cost: this method, and others so named")
    parser.add_argument("--boards", type=int, default=2000)
    parser.add_argument("--by", default="", help="of write: your name")
    parser.add_argument("--without", action="append", default=[], help="of analyse and null: not this suite")
    parser.add_argument("--picture", type=Path, help="of analyse: a file for the picture")
    options = parser.parse_args()
    analysis = yaml.safe_load(ANALYSIS.read_text(encoding="utf-8"))
    experiment = load_experiment(analysis["experiment"])

    if options.command == "run":
        return run(experiment, options)
    if options.command == "cost":
        return cost(experiment, options)
    if options.command == "power":
        return power(experiment, analysis, Home.at(options.home))

    if options.command != "write" and options.folder is not None:
        records = records_of_results(options.folder)
        experiment = load_experiment(options.folder / EXPERIMENT)  # of its edition
        suites = {record.dataset for record in records}
        rows = [row for row in planned(experiment) if row[0] in suites]
    else:
        records, rows = list(own_board(experiment, Home.at(options.home)).records), planned(experiment)
        records += list(ensembles(records, Home.at(options.home)))
    if options.without:
        records = [record for record in records if record.dataset not in options.without]
        rows = [row for row in rows if row[0] not in options.without]
    study = study_of(records, analysis, rows)
    if options.command != "null":
        study = replace(study, seconds=_seconds(experiment, study, records, options))
    if options.command == "null":
        return null(study, options.boards)
    if options.command == "write":
        if options.folder is None or not options.by:
            raise UserError("write needs a folder such as results/2026-11-27, and --by with your name")
        return write(experiment, study, options)
    print(tables(study))
    if options.picture:
        picture(study, options.picture)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"standing_study: {error}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as error:
        print(f"standing_study: {error}", file=sys.stderr)
        sys.exit(error.status)
