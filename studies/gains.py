"""What a method gains over the reference on many data sets: the mean, its interval, and every set's own gain.

    mtlscale run svd_noise_celeba_cpu --home HOME
    python studies/gains.py svd_noise_celeba_cpu --home HOME
    python studies/gains.py svd_noise_celeba_cpu --home HOME --metric accuracy --method svd_reweighting

A gain is the method's test metric less the reference's of the same data set, task and seed, in points, and the other
way round where lower is better. A set's gain is the mean over its tasks and seeds. The mean over sets has a 95 %
t-interval over the sets' gains, with as many values as there are sets: seeds of one set, which has one draw of wrong
labels, count as one. Sets with noise in no, some or all tasks have means of their own, and where some tasks have it
those and the others. An interval over sets takes them for independent draws: pairs of attributes of which no two share
one come close, sets that differ in which label is wrong do not. Sets with the same noisy tasks and the same seed of the
noise count as one, their mean. Sets that differ in a setting besides (share of wrong labels, of the training samples,
size of the encoder) are also told by setting. Of methods with weights of their own it
says what a task with noise weighs over one without. Tables in Markdown; the picture has the sets in order with
intervals over their seeds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtlscale.config import DatasetSpec, Experiment, UserError, load_experiment
from mtlscale.execution.finding.own_board import own_board
from mtlscale.records import Home, RunRecord
from mtlscale.report.charts.chart import PLAIN, Axis, Chart, Dots, Level, Mark, Panel
from mtlscale.report.charts.colors import LineStyle
from mtlscale.report.charts.vega import save
from mtlscale.report.sections.learning_curves import FRACTION_KEY
from mtlscale.report.stats.statistics import half_width, t_test

Part = Callable[[str, str], bool]  # data set, task -> whether it counts
FLOORS = ("constant", "linear")
MEAN = LineStyle("#c0821a")


@dataclass(frozen=True)
class Gain:
    """Of one data set: the mean gain of each seed, in points."""

    dataset: str
    seeds: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.seeds))

    @property
    def half(self) -> float:
        return float(half_width(np.std(self.seeds, ddof=1), len(self.seeds))) if len(self.seeds) > 1 else math.nan


def gains(records: Iterable[RunRecord], method: str, reference: str, metric: str | None, part: Part) -> list[Gain]:
    """Of every data set that has both with some seed. metric: None: each task's main one."""
    done = {(r.dataset, r.method, r.seed): r for r in records if r.status == "finished"}
    found: dict[str, list[float]] = {}
    for (dataset, label, seed), record in done.items():
        beside = done.get((dataset, reference, seed))
        if label != method or beside is None:
            continue
        mine, theirs = record.metrics["test"], beside.metrics["test"]
        values = []
        for task in mine:
            name = metric or record.main_metrics[task]
            if name in mine[task] and part(dataset, task):
                sign = 1.0 if record.higher_is_better[name] else -1.0
                values.append(sign * (mine[task][name] - theirs[task][name]))
        if values and not np.isnan(values).any():
            found.setdefault(dataset, []).append(float(np.mean(values)))
    return [Gain(dataset, tuple(seeds)) for dataset, seeds in found.items()]


def parts(experiment: Experiment) -> dict[str, Part]:
    """What has a mean of its own: sets by how many of their tasks have noise, and, where some have, both sides."""
    noisy = {dataset.label: _noisy(dataset) for dataset in experiment.datasets}
    kinds = {label: "all" if names is None else "some" if names else "no" for label, names in noisy.items()}

    def of_kind(kind: str) -> Part:
        return lambda dataset, task: kinds[dataset] == kind

    found = {f"sets with noise in {kind} tasks": of_kind(kind) for kind in dict.fromkeys(kinds.values())}
    if "some" in kinds.values():
        found["of some: the tasks with noise"] = lambda dataset, task: task in (noisy[dataset] or ())
        found["of some: the tasks without"] = lambda dataset, task: (
            kinds[dataset] == "some" and task not in (noisy[dataset] or ())
        )
    return found


def _noisy(dataset: DatasetSpec) -> tuple[str, ...] | None:
    """The tasks whose labels have noise; None: all."""
    noise = dataset.noise
    if noise is None or noise.share == 0:
        return ()
    return None if noise.tasks is None or set(noise.tasks) == set(dataset.tasks or ()) else noise.tasks


def by_draw(experiment: Experiment, found: Sequence[Gain]) -> list[Gain]:
    """Return a gain for each draw of noise: the mean of the sets with the same noisy tasks and seed of the noise."""
    draws = {
        dataset.label: str((dataset.name, dataset.options, dataset.tasks, noise.seed, noise.tasks))
        for dataset in experiment.datasets
        if (noise := dataset.noise) is not None and noise.share
    }
    groups: dict[str, list[Gain]] = {}
    for gain in found:
        groups.setdefault(draws.get(gain.dataset, gain.dataset), []).append(gain)
    return [
        group[0] if len(group) == 1 else Gain(group[0].dataset, tuple(gain.mean for gain in group))
        for group in groups.values()
    ]


def settings_of(records: Iterable[RunRecord]) -> dict[str, str]:
    """Return data set -> its noise, share of samples and encoder, of these what differs between sets with noise."""
    known: dict[str, dict[str, str]] = {}
    for record in records:
        spec = record.spec.get("dataset", {})
        if noise := spec.get("label_noise"):
            share = {"noise": f"{noise['share']:g}", "train": f"{spec.get(FRACTION_KEY, 1.0)}"}
            encoder = {name: str(value).strip("[]") for name, value in record.spec.get("encoder", {}).items()}
            known.setdefault(record.dataset, {**share, **encoder})
    differing = [
        name
        for name in dict.fromkeys(name for settings in known.values() for name in settings)
        if len({settings.get(name) for settings in known.values()}) > 1
    ]
    return {
        dataset: ", ".join(f"{name} {settings[name]}" for name in differing if name in settings)
        for dataset, settings in known.items()
    }


def by_setting(
    experiment: Experiment, records: Sequence[RunRecord], methods: Sequence[str], reference: str, metric: str | None
) -> list[str]:
    """Return the rows of a table of mean gains, a row for each setting and side; none where sets have one setting."""
    settings = settings_of(records)
    if len(set(settings.values())) < 2:
        return []
    rows = [f"| setting | tasks | {' | '.join(methods)} |", f"| --- | --- |{' --- |' * len(methods)}"]
    sides = {
        name.rpartition("the tasks ")[2]: part for name, part in parts(experiment).items() if name.startswith("of")
    }
    for setting in dict.fromkeys(settings.values()):
        for side, part in {"all": lambda dataset, task: True, **sides}.items():
            cells = []
            for method in methods:
                found = [
                    g for g in gains(records, method, reference, metric, part) if settings.get(g.dataset) == setting
                ]
                cells.append(summary(found).split("|")[1].strip())
            rows.append(f"| {setting} | {side} | {' | '.join(cells)} |")
    return rows


def noisy_weights(experiment: Experiment, records: Iterable[RunRecord], method: str) -> dict[str, float]:
    """Return data set -> what a task with noise weighs over one without, mean over seeds; sets with both alone."""
    noisy = {dataset.label: _noisy(dataset) for dataset in experiment.datasets}
    found: dict[str, list[float]] = {}
    for record in records:
        names = noisy.get(record.dataset)
        weights = record.epochs[-1].weights if record.epochs and record.method == method else {}
        sides = [[w for task, w in weights.items() if (task in (names or ())) == side] for side in (True, False)]
        if all(sides) and sum(sides[1]) > 0:
            found.setdefault(record.dataset, []).append(float(np.mean(sides[0]) / np.mean(sides[1])))
    return {dataset: float(np.mean(values)) for dataset, values in found.items()}


def weights_by_setting(experiment: Experiment, records: Sequence[RunRecord], methods: Sequence[str]) -> list[str]:
    """Return the rows of a table of what tasks with noise weigh over those without, and in how many sets less."""
    settings = settings_of(records)
    several = len(set(settings.values())) > 1
    rows = []
    for setting in dict.fromkeys(settings.values()):
        for method in methods:
            found = noisy_weights(experiment, records, method)
            ratios = [ratio for dataset, ratio in found.items() if settings.get(dataset) == setting]
            if np.ptp(ratios or [1.0]) > 1e-9:  # weights that are set, or equal, are the same everywhere
                below = sum(ratio < 1 for ratio in ratios)
                where = f"| {setting} " if several else ""
                rows.append(
                    f"{where}| {method} | {np.exp(np.mean(np.log(np.maximum(ratios, 1e-9)))):.2f} | "
                    f"{min(ratios):.2f} to {max(ratios):.2f} | {below} of {len(ratios)} |"
                )
    head = ["setting"] * several + ["method", "geometric mean", "from, to", "below 1"]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *rows] if rows else []


def summary(found: Sequence[Gain]) -> str:
    """Mean with interval, sets, those that gain, p."""
    means = np.array([one.mean for one in found])
    if not len(means):
        return "| – | 0 | – | – |"
    half = float(half_width(means.std(ddof=1), len(means))) if len(means) > 1 else math.nan
    p = float(t_test(means[:, None])[0])
    return (
        f"| {_told(float(means.mean()), half)} | {len(means)} | {(means > 0).sum()} | {'–' if p != p else f'{p:.2g}'} |"
    )


def _told(mean: float, half: float) -> str:
    return f"{mean:+.3f}" if math.isnan(half) else f"{mean:+.3f} ± {half:.3f}"


def picture(found: Sequence[Gain], title: str, path: Path) -> Path:
    ordered = sorted(found, key=lambda one: one.mean)
    means = np.array([one.mean for one in ordered])
    names = [one.dataset for one in ordered]
    levels: list[Mark] = [Level(at=0.0, axis="x", look=PLAIN), Level(at=means.mean(), axis="x", look=MEAN)]
    if len(ordered) > 1:
        half = float(half_width(means.std(ddof=1), len(means)))
        ends = (means.mean() - half, means.mean() + half)
        levels += [Level(at=end, axis="x", look=replace(MEAN, dash="dot")) for end in ends]
    dots = Dots(x=means, y=names, looks=LineStyle("#2f6fb3"), x_error=[one.half for one in ordered])
    x = Axis(title="points; bars: 95 % over seeds; lines: mean and 95 % over sets")
    panel = Panel(marks=[*levels, dots], x=x, y=Axis(names=names))
    return save([Chart(panels=[panel], title=title, width=6.4, height=1.2 + 0.2 * len(ordered))], path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="name or file")
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--method", action="append", help="may be given several times; default: all but the floors")
    parser.add_argument("--metric", help="default: each task's main one")
    parser.add_argument("--picture", type=Path, help="default: gains_METHOD.png beside the leaderboard")
    arguments = parser.parse_args()
    experiment, home = load_experiment(arguments.experiment), Home.at(arguments.home)
    records, reference = own_board(experiment, home).records, str(experiment.reference)
    known = [method.label for method in experiment.methods if method.label not in (reference, *FLOORS)]
    methods = arguments.method or known
    if unknown := [method for method in methods if method not in known]:
        raise UserError(f"{experiment.name} has no method {unknown[0]} beside {reference}; it has {', '.join(known)}")
    if arguments.picture and len(methods) > 1:
        raise UserError(f"one picture is of one method; name it by --method: {', '.join(methods)}")
    measured = arguments.metric or "the main metric"
    tables = {m: gains(records, m, reference, arguments.metric, lambda dataset, task: True) for m in methods}
    if missing := [method for method, found in tables.items() if not found]:
        raise UserError(
            f"no data set in {home.root} has finished runs of {missing[0]} and {reference} with {measured}; start them "
            f"with `mtlscale run {experiment.name}`"
        )
    print(f"Gain in {measured} over {reference}, test, points; mean over data sets ± 95 % over their gains\n")
    print("| method | mean over | gain | sets | gain > 0 | p |\n| --- | --- | --- | --- | --- | --- |")
    for method in methods:
        for name, part in parts(experiment).items():
            found = by_draw(experiment, gains(records, method, reference, arguments.metric, part))
            print(f"| {method} | {name} {summary(found)}")
    for title, rows in (
        ("By setting", by_setting(experiment, records, methods, reference, arguments.metric)),
        ("Weight of a task with noise over one without", weights_by_setting(experiment, records, methods)),
    ):
        if rows:
            print("\n".join([f"\n{title}\n", *rows]))
    for method, found in tables.items():
        print(f"\n{method}, by data set, ± 95 % over seeds\n\n| set | gain | seeds |\n| --- | --- | --- |")
        for one in sorted(found, key=lambda one: -one.mean):
            print(f"| {one.dataset} | {_told(one.mean, one.half)} | {len(one.seeds)} |")
        path = arguments.picture or home.experiment(experiment.name) / f"gains_{method}.png"
        print(f"\n{picture(found, f'{method} over {reference}: gain in {measured}', path)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"gains: {error}", file=sys.stderr)
        sys.exit(2)
