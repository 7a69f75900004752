"""Write results/tables from the records that experiments leave; no number is typed or chosen by hand.

    mtlscale run getmtl_newsgroups ...            # any of the experiments, with --home HOME
    python studies/results.py --home HOME         # all experiments that have runs there
    python studies/results.py --home HOME getmtl_newsgroups tomato_table3
    python studies/results.py --page PAGE         # from a page of many suites that an earlier version wrote

Each suite gets a folder `results/tables/<suite>/<version>` with a page and a CSV file per table
(`studies/result_tables.py`). The page shows the command, the settings of every method, the whole leaderboard (every
row, seeds, both kinds of intervals, floors, failures), which methods are better than the linear floor by the
leaderboard's own test, how far the weights of balancers were from equal ones, what searches of where to share found and
where gradients conflicted, and the published numbers with a sentence for every sign that differs. For experiments on
many data sets it shows what these say together.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import adaptation
import courses
import gains
import result_tables
import safety
import structures
import theory

from mtlscale.config import Experiment, UserError, load_experiment
from mtlscale.config.experiment.loading import shipped
from mtlscale.execution.finding.own_board import own_board
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.report import Leaderboard, read_published
from mtlscale.report.formats.markdown import markdown
from mtlscale.report.report_section import REPORT
from mtlscale.report.sections.comparisons import compared
from mtlscale.report.sections.registry import sections
from mtlscale.version import __version__

ORDER = (
    *("getmtl_", "aamtrl_", "tomato_", "conal_", "dsmtl_"),
    *("transfer_", "capacity_", "sentences_", "svd_", "groups_", "office_", "fronts_"),
    *("celeba9_", "nyuv2_", "cityscapes_", "pascal_", "taskonomy_"),
)
FLOOR = "linear"
MANY = 6  # data sets of one experiment, above which what they say together is shown instead of each one's table
WIDEST = 30  # columns of a table that anybody reads; the tasks of School are in leaderboard.html
# What writes its experiments itself and leaves a page instead of records.
PROGRAMS = {
    "figure3": (
        "python studies/figure3.py",
        "Where a source of the same, a disjoint or a rotated covariance helps and hurts: target size, noise, width and "
        "steps, the chosen settings on other draws, and the settings as printed.",
    ),
    "features_of_domains": (
        "mtlscale run office_caltech10_cpu --set tracking.models=true \\\n"
        '  --only "source only" --only "PC λ=1" --only AASPC\n'
        "python studies/features.py office_caltech10_cpu --home outputs",
        "Figure 4.6 of AASPC (Yue's thesis): do features of source and target mix, and does a target lie by its class?",
    ),
    **{f"theory_{name}": (f"python studies/theory.py {name}", case.question) for name, case in theory.CASES.items()},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "experiments", nargs="*", help="names or files; default: all shipped ones with runs in the home"
    )
    parser.add_argument(
        "--home", type=Path, action="append", help="of the runs, may be given several times; default: outputs"
    )
    parser.add_argument("--output", type=Path, default=result_tables.TABLES, help="default: results/tables")
    parser.add_argument("--page", type=Path, help="a page of many suites to take instead of records")
    arguments = parser.parse_args()

    pages = _from_page(arguments.page) if arguments.page else _from_records(arguments.home, arguments.experiments)
    for suite, page in pages:
        folder = arguments.output / suite / result_tables.version_of(page, __version__)
        result_tables.write(folder, page)
        print(folder)
    (arguments.output / "README.md").write_text(result_tables.index(arguments.output), encoding="utf-8")
    return 0


def _from_page(path: Path) -> Iterator[tuple[str, str]]:
    yield from result_tables.sections(path.read_text(encoding="utf-8"))


def _from_records(paths: list[Path] | None, experiments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (suite, its page) of all experiments with runs in the home folders.

    Raises:
        UserError: If there are none, or none of one that was asked for.
    """
    homes = [Home.at(path) for path in paths or [Path("outputs")]]
    parts: list[str] = []

    for name in experiments or sorted(shipped(), key=_place):
        experiment = load_experiment(name)
        places = [home for home in homes if home.ledger(experiment.name).is_file()]
        found = next(((records, home) for home in places if (records := left(experiment, home))), None)
        if found:
            parts += section(experiment, *found)
        elif experiments:
            raise UserError(f"no runs of {name} in {_told(homes)}; start them with `mtlscale run {name}`")

    for name, (command, description) in PROGRAMS.items():
        if page := _left_page(name, homes):
            parts += [f"## {name}\n", f"{description}\n", f"```sh\n{command}\n```\n", page]

    if not parts:
        raise UserError(f"no runs of a shipped experiment in {_told(homes)}; start one, or name its --home")
    yield from result_tables.sections("\n".join(parts))


def _left_page(name: str, homes: list[Home]) -> str:
    """Return the page that a program left in a home folder; "" if there is none."""
    paths = (home.experiment(name) / "page.md" for home in homes)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return ""
    return "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()) + "\n"


def left(experiment: Experiment, home: Home) -> tuple[RunRecord, ...]:
    """Return the newest record of every row that the commands left, with its epochs.

    `given` names the revisions of the code that made them; later changes of defaults do not remove them.
    """
    rows = [
        (dataset.label, method.label, seed)
        for dataset in experiment.datasets
        for method in experiment.methods
        for seed in experiment.seeds
    ]
    # A run that two rows share is in the ledger once; the plan shows it under both.
    records = [*Ledger(home.ledger(experiment.name)), *own_board(experiment, home).records]
    found = {(record.dataset, record.method, record.seed): record for record in records}
    records = [found[row] for row in rows if row in found]
    return tuple(record.model_copy(update={"epochs": home.epochs(record.run_id)}) for record in records)


def _told(homes: list[Home]) -> str:
    return ", ".join(str(home.root) for home in homes)


def _place(name: str) -> tuple[int, str]:
    return next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER)), name


def section(experiment: Experiment, records: tuple[RunRecord, ...], home: Home) -> Iterator[str]:
    published = None if experiment.published is None else read_published(experiment.published)
    delta = experiment.delta_of()
    board = Leaderboard.from_records(records, experiment.baseline, experiment.reference, published, delta)
    yield f"## {experiment.name}\n"
    transferred = all(table.domains for table in board.tables.values())
    many = transferred or len(experiment.datasets) > MANY
    if not many:
        against = Leaderboard.from_records(records, experiment.baseline, FLOOR, delta=delta)
        yield from (f"{line}\n" for line in floors(against))
    yield f"{experiment.description}\n"
    yield f"```sh\nmtlscale run {experiment.name}\n```\n"
    yield given(experiment, records, home)
    noisy = many and any(dataset.noise is not None for dataset in experiment.datasets)
    made = sections(board.report(records), REPORT)
    together = markdown([study for study in made if not study.dataset])
    if together and not noisy:  # of noise there are draws, and a study of each would say nothing
        yield re.sub(r"^(##+) ", r"#\1 ", together, flags=re.MULTILINE)
    if many:
        if noisy:
            yield from gained(experiment, records)
        if transferred:
            yield from adaptation.tables(records, str(experiment.reference))
        yield f"The tables of its {len(experiment.datasets)} data sets are in the home's leaderboard.html.\n"
        return
    lines = [line for line in board.to_markdown().splitlines() if line.count(" | ") < WIDEST]
    yield re.sub(r"^(##+) ", r"#\1 ", "\n".join([*lines, ""]), flags=re.MULTILINE)
    yield from by_seed(board)
    yield from acted(records)
    yield from structures.found(records)
    yield from courses.by_epoch(records)
    yield from courses.by_topic(records)
    yield from courses.by_task(records)
    yield from courses.by_number_of_tasks(records, str(experiment.baseline))
    if safe := list(safety.safety(records, str(experiment.baseline))):
        yield "\n".join([*safe, ""])
    for dataset, table in board.tables.items():
        comparisons = compared(table, board.published.get(dataset, ()))
        yield from (f"- {sentence}" for comparison in comparisons for sentence in comparison.opposite)
    yield ""


def gained(experiment: Experiment, records: tuple[RunRecord, ...]) -> Iterator[str]:
    """Yield the mean gain of each method over the reference, over the data sets (`studies/gains.py`)."""
    reference = experiment.reference
    others = [m.label for m in experiment.methods if m.label not in (reference, *gains.FLOORS)]
    yield f"Gain over {reference} in the main metric, test, points; mean over data sets ± 95 % over their gains:\n"
    rows = ["| method | mean over | gain | sets | gain > 0 | p |", "| --- | --- | --- | --- | --- | --- |"]
    for method in others:
        for name, part in gains.parts(experiment).items():
            found = gains.by_draw(experiment, gains.gains(records, method, str(reference), None, part))
            rows.append(f"| {method} | {name} {gains.summary(found)}")
    yield "\n".join([*rows, ""])
    for title, rows in (
        (
            f"The same by setting, gain over {reference}:",
            gains.by_setting(experiment, records, others, str(reference), None),
        ),
        ("Weight of a task with noise over one without:", gains.weights_by_setting(experiment, records, others)),
    ):
        if rows:
            yield "\n".join([f"{title}\n", *rows, ""])


def given(experiment: Experiment, records: tuple[RunRecord, ...], home: Home) -> str:
    """Return a sentence on what was run and what it took."""
    seconds, count = sum(record.seconds for record in records), len(records)
    text = f"{count} runs, seeds {', '.join(map(str, sorted({record.seed for record in records})))}"
    if experiment.search is not None:
        trials = [
            record
            for record in Ledger(home.trials(experiment.name, experiment.search.ledger)).latest().values()
            if record.experiment == experiment.name
        ]
        text += (
            f", settings from {experiment.search.budget} trials for every method and data set that has any to search "
            f"(seed {experiment.search.seed}, {len(trials)} trials in all)"
        )
        seconds += sum(record.seconds for record in trials)
    hardware = sorted({record.hardware for record in records})
    revisions = sorted({record.revision[:9] for record in records if record.revision})
    made = f"mtlscale {__version__}{f' at {chr(44).join(revisions)}' if revisions else ''}"
    return f"{text}; {seconds / 60:.0f} minutes of one worker in all, {made}, {'; '.join(hardware)}.\n"


def floors(board: Leaderboard) -> Iterator[str]:
    """Yield, by data set, the methods better than the linear floor by the leaderboard's test against it."""
    for dataset, table in board.tables.items():
        if table.reference is None or str(table.reference).lower() != FLOOR:
            continue
        others = table.rows.drop(index=[label for label in (FLOOR, "constant") if label in table.rows.index])
        verdicts: dict[str, list[str]] = {}
        for label, verdict in others["verdict"].items():
            verdicts.setdefault(str(verdict), []).append(f"`{label}`")
        better = verdicts.pop("better", [])
        first = (
            f"better than the linear floor: {', '.join(better)}"
            if better
            else "no method is better than the linear floor"
        )
        rest = "; ".join(f"{verdict or 'no test'}: {', '.join(labels)}" for verdict, labels in verdicts.items())
        yield f"**{dataset}: {first}**{f'; {rest}' if rest else ''}."


def by_seed(board: Leaderboard) -> Iterator[str]:
    """Yield a table for each data set of what every run reached, which differences of the same seed are taken from."""
    for dataset, table in board.tables.items():
        values = table.by_seed(table.runs["average"]) if "average" in table.runs else None
        if values is None or len(values) < 2:
            continue
        yield f"### {dataset} by seed\n"
        yield f"| method by seed | {' | '.join(map(str, values.index))} |\n| --- |{' ---: |' * len(values)}"
        for method in table.rows.index:
            shown = ["–" if math.isnan(value) else f"{value:.3f}" for value in values[method]]
            yield f"| {method} | {' | '.join(shown)} |"
        yield ""


def acted(records: tuple[RunRecord, ...]) -> Iterator[str]:
    """Yield a table of how far each balancer's weights ever were from equal ones, with GetMTL's κ."""
    rows = []
    for method in dict.fromkeys(record.method for record in records):
        done = [record for record in records if record.method == method and record.status == "finished"]
        known = [record.departure for record in done if record.departure is not None]
        kappas = [e.traces["kappa"] for record in done for e in record.epochs[-1:] if "kappa" in e.traces]
        if (known and max(known) > 0) or kappas:
            settings = sorted({words(record.trial) for record in done})
            kappa = f"{min(kappas):.2g} to {max(kappas):.2g}" if kappas else ""
            furthest = f"{100 * min(known):.2g} to {100 * max(known):.3g}" if known else "–"
            rows.append(f"| {method} | {'; '.join(settings)} | {furthest} | {kappa} | {failures(done)} |")
    if rows:
        yield "How far weights were from equal ones, the largest \\|Tω/Σω − 1\\| of all steps in %, over the seeds:\n"
        yield "| method | chosen | from equal, % | largest κ | clamps, failures |\n| --- | --- | ---: | ---: | ---: |"
        yield from rows
        yield ""


def failures(records: list[RunRecord]) -> str:
    counted = [sum(record.counters.get(name, 0) for record in records) for name in ("clamps", "failures")]
    return ", ".join(map(str, counted))


def words(trial: dict[str, object]) -> str:
    short = {key.removeprefix("training.").removeprefix("model."): value for key, value in trial.items()}
    return ", ".join(f"{key} {f'{value:.3g}' if isinstance(value, float) else value}" for key, value in short.items())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"results: {error}")
