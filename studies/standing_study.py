"""Which methods beat tuned equal weighting: run, power, analysis, null boards and pages of the standing study.

    python studies/standing_study.py run --home HOME                       # suite by suite; may be cut off and resumed
    python studies/standing_study.py power --home HOME                     # seeds that show one point, and their cost
    python studies/standing_study.py write results/2026-11-24 --home HOME --by NAME
    python studies/standing_study.py analyse results/2026-11-24            # tables in Markdown; --picture FILE draws
    python studies/standing_study.py analyse results/2026-11-24 --without qm9
    python studies/standing_study.py null results/2026-11-24 --boards 2000 # errors where there are no differences

The experiment (suites, methods, budget, seeds) is experiments/standing_study.yaml, the analysis beside this file in
standing_study.yaml. `run` leaves out a suite whose data are not there, by name, and goes on. `write` takes the suites
with all runs of all methods, names the others, and refuses a folder of results whose data were others; a row that was
run anew replaces the old one, which is kept in superseded.csv. `null` permutes the labels of the methods within every
suite and seed and does the whole analysis again: exit status 1 where more than 5 of 100 boards have a win or a loss
that is not there (and two standard errors of the simulation).
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from mtlscale.api import run as run_experiment
from mtlscale.api.submission.write import contribute
from mtlscale.cli.options import only
from mtlscale.config import Experiment, UserError, find_experiment, load_experiment, read_settings
from mtlscale.config.registry.components import component, names
from mtlscale.execution.finding.own_board import own_board
from mtlscale.execution.stopping import Interrupted
from mtlscale.records import Home, RunRecord, write_atomically
from mtlscale.records.submission_schema import Problem, is_results, read_provenance, records_of_results
from mtlscale.report.charts.canvas import new_figure, save, style
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.overall.takeaway import sentence
from mtlscale.report.stats.hierarchical import hierarchical
from mtlscale.report.stats.pareto import pareto
from mtlscale.report.stats.statistics import half_width, holm, t_test

ANALYSIS = Path(__file__).with_suffix(".yaml")
SUPERSEDED, RUNS, SETTINGS = "superseded.csv", "runs_{}.csv", "settings.csv"
MOST_ERROR = 0.05
FEWEST_SUITES = 4  # of a rank correlation
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
    if not complete:
        raise UserError(f"no suite is complete ({'; '.join(f'{suite}: {why}' for suite, why in missing.items())})")
    board = Leaderboard.from_records(complete, baseline="stl", reference=analysis["reference"])
    left_out = {analysis["reference"], *analysis["untested"]}
    methods = [method for method in dict.fromkeys(method for _, method, _ in rows) if method not in left_out]
    return Study(analysis, board, methods, missing, traits_of(complete, analysis))


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
        permuted = rng.permuted(np.repeat(scores[..., None], count, axis=3), axis=2)
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
    name = method.partition("(")[0]
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
    seconds = _cost(study)
    fronts = pareto(seconds, np.append(0.0, mean(means)))

    wins = (overall < analysis["level_overall"]) & (mean(means) > 0)
    wins &= np.array([found.better >= analysis["sure"] for found in posterior])
    frame = pd.DataFrame(
        {
            "kind": [kind_of(method) for method in study.methods],
            "gain": mean(means),
            "± suites": half_width(deviation(means), (~np.isnan(means)).sum(axis=0)),
            "better": (signs > 0).sum(axis=0),
            "same": (signs == 0).sum(axis=0),
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
    return frame.sort_values("gain", ascending=False, kind="stable")


def _cost(study: Study) -> NDArray[np.float64]:
    """Return the geometric mean over suites of step times as ratios to the reference, the reference first."""
    columns = [study.analysis["reference"], *study.methods]
    frames = [
        table.runs.groupby("method")["step_seconds"].median().reindex(columns) for table in study.board.tables.values()
    ]
    return np.exp(mean(np.array([np.log(frame / frame.iloc[0]) for frame in frames])))


def suite_table(study: Study) -> pd.DataFrame:
    """Return one row per suite: its size, what it can show, and what was found."""
    gains, tests = study.gains, study.gains.shape[1] * study.gains.shape[2]
    cells, _ = tested(gains)
    means = mean(gains)
    rows = {}
    for index, (suite, table) in enumerate(study.board.tables.items()):
        spread = _typical(gains[:, index])
        signs = np.where(cells[index] < study.analysis["level_suites"], np.sign(means[index]), 0)
        base = study.scores([study.analysis["reference"], "linear"])[:, index]
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
            "linear − stl": float(mean(base[:, 1])),
            "best": f"{study.methods[int(np.nanargmax(means[index]))]} {np.nanmax(means[index]):+.2f}",
            "failed runs": len(table.failures),
        }
    return pd.DataFrame(rows).T.rename_axis("suite")


def _typical(gains: NDArray[np.float64]) -> float:
    """Return the median over methods of the standard deviation over seeds."""
    return float(np.nanmedian(deviation(gains)))


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
        [f"{m:+.2f} ± {h:.2f}{'*' if p < study.analysis['level_suites'] else ''}" for m, h, p in zip(*row, strict=True)]
        for row in zip(means.T, halves.T, cells.T, strict=True)
    ]
    return pd.DataFrame(text, columns=study.suites, index=pd.Index(study.methods, name="method"))


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.map(lambda value: f"{value:.3g}" if isinstance(value, float) else value)


def tables(study: Study) -> str:
    overall = study.board.overall(study.analysis["rope"])
    parts = ["## Methods", markdown(rounded(method_table(study))), "## Suites", markdown(rounded(suite_table(study)))]
    parts += ["## By kind of method", markdown(rounded(kind_table(study)))]
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
    colours = dict(zip(dict.fromkeys(frame["kind"][::-1]), ("C0", "C1", "C2", "C3", "C4"), strict=False))
    with style():
        figure = new_figure(7.2, 1.2 + 0.17 * len(frame))
        axes = figure.subplots()
        for row, (method, values) in enumerate(frame.iterrows()):
            axes.plot(of_method[method], [row] * len(study.suites), "o", markersize=2.5, color="#8a9099", alpha=0.7)
            colour = colours[values["kind"]]
            axes.errorbar(values["gain"], row, xerr=values["± suites"], fmt="D", markersize=3.5, color=colour, lw=1.2)
        axes.axvline(0.0, color="#4a4f57", lw=0.8)
        axes.set_xscale("symlog", linthresh=2, linscale=2)
        low, high = np.nanmin(means), np.nanmax(means)
        axes.set_xticks([tick for tick in TICKS if low <= tick <= high])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(range(len(frame)), list(frame.index), fontsize=7)
        axes.set(
            ylim=(-1, len(frame)), xlabel="points of Δ (10 seeds); grey: one suite, coloured: the mean over suites"
        )
        axes.set_title(f"Gain over tuned equal weighting, {len(study.suites)} suites")
        for kind, colour in colours.items():
            axes.plot([], [], "D", color=colour, markersize=4, label=kind)
        axes.legend(fontsize=7, loc="lower right")
    return save(figure, path)


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


def power(experiment: Experiment, analysis: dict[str, Any], home: Home) -> int:
    """Print what the runs that there are, of few methods and seeds, say of the seeds needed."""
    records = [record for record in own_board(experiment, home).records if record.status == "finished"]
    left_out = {analysis["reference"], *analysis["untested"], "stl"}
    tests = len(experiment.datasets) * (len(experiment.methods) - len(analysis["untested"]) - 1)
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


def _former(folder: Path) -> dict[str, RunRecord]:
    return {record.run_id: record for record in records_of_results(folder)} if is_results(folder) else {}


def _keys(records: Iterable[RunRecord]) -> set[str]:
    return {record.run_id for record in records}


def _superseded(folder: Path) -> list[dict[str, Any]]:
    path = folder / SUPERSEDED
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))) if path.is_file() else []


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


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, buffer.getvalue().encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "power", "analyse", "null", "write"))
    parser.add_argument("folder", type=Path, nargs="?", help="dated results; analyse and null read a home without it")
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--dataset", action="append", help="of run: this suite, and others so named")
    parser.add_argument("--only", action="append", help="of run: this method, and others so named")
    parser.add_argument("--boards", type=int, default=2000)
    parser.add_argument("--by", default="", help="of write: your name")
    parser.add_argument("--without", action="append", default=[], help="of analyse and null: not this suite")
    parser.add_argument("--picture", type=Path, help="of analyse: a file for the picture")
    options = parser.parse_args()
    analysis = yaml.safe_load(ANALYSIS.read_text(encoding="utf-8"))
    experiment = load_experiment(analysis["experiment"])

    if options.command == "run":
        return run(experiment, options)
    if options.command == "power":
        return power(experiment, analysis, Home.at(options.home))

    if options.command != "write" and options.folder is not None:
        records = records_of_results(options.folder)
        suites = {record.dataset for record in records}
        rows = [row for row in planned(experiment) if row[0] in suites]
    else:
        records, rows = list(own_board(experiment, Home.at(options.home)).records), planned(experiment)
    if options.without:
        records = [record for record in records if record.dataset not in options.without]
        rows = [row for row in rows if row[0] not in options.without]
    study = study_of(records, analysis, rows)
    if options.command == "null":
        return null(study, options.boards)
    if options.command == "write":
        if options.folder is None or not options.by:
            raise UserError("write needs a folder such as results/2026-11-24, and --by with your name")
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
