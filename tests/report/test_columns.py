"""Columns and sections: each is one file, shipped or a plugin's, and every format has it."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest
import reference
from command import mtlscale
from rich.console import Console

from mtlscale.api.mlflow_rows import rows_of
from mtlscale.config import Experiment, UserError, load_experiment
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.report import Leaderboard
from mtlscale.report.columns.registry import definitions
from mtlscale.report.columns.shown import columns
from mtlscale.report.rendered import FORMATS
from mtlscale.report.report_files import write_report
from mtlscale.report.report_section import FIRST, OVERALL
from mtlscale.report.results import Results
from mtlscale.report.sections.registry import sections

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
Make = Callable[..., RunRecord]
TASKS = ("digit0", "digit1", "digit2")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for plugins, which are forgotten afterwards."""
    before = set(sys.modules)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("mtlscale_plugin_") and name not in before]:
        del sys.modules[name]


def experiment_with(folder: Path, *plugins: Path) -> Experiment:
    file = folder / "mine.yaml"
    names = ", ".join(str(plugin) for plugin in plugins)
    file.write_text(f"plugins: [{names}]\ndatasets: [digits]\nmethods: [stl, equal]\nfloors: []\nseeds: [0, 1, 2]\n")
    return load_experiment(file)


def results_of(experiment: Experiment, record: Make, folder: Path) -> Results:
    """The experiment's runs, as if they had ended."""
    records = []
    for run in experiment.runs({"digits": "f00d"}):
        values = [80.0 + 3 * number + run.seed + (run.method == "stl") for number in range(len(TASKS))]
        test = {task: {"accuracy": value} for task, value in zip(TASKS, values, strict=True)}
        fields = {"experiment": experiment.name, "spec": run.spec, "run_id": run.run_id}
        records.append(record(run.method, run.seed, test, **fields, higher_is_better={"accuracy": True}))
    return Results(experiment, tuple(records), folder)


def texts_of(board: Leaderboard, records: Sequence[RunRecord]) -> dict[str, str]:
    """Format -> the text that it makes of a leaderboard."""
    shown = board.report(records, title="mine", overall=board.overall())
    console = Console(width=200, file=io.StringIO(), color_system=None)
    for part in shown.printed(wide=True):
        console.print(part)
    texts = {form: shown.text(form) for form in FORMATS if form != "terminal"}
    return {"terminal": console.file.getvalue(), **texts}  # type: ignore[attr-defined]


def shown_in_every_format(experiment: Experiment, record: Make, folder: Path) -> tuple[Results, dict[str, str]]:
    results = results_of(experiment, record, folder)
    return results, texts_of(results.leaderboard(explained=False), results.records)


def test_a_new_column_is_one_file_and_in_every_format(record: Make, folder: Path) -> None:
    plugin = Path(shutil.copy(EXAMPLES / "worst_task.py", folder))
    assert len(plugin.read_text().splitlines()) <= 10
    results, texts = shown_in_every_format(experiment_with(folder, plugin), record, folder)
    for form in ("terminal", "markdown", "latex", "html"):
        assert "worst task" in texts[form], form
        assert "82.00 ± 2.48" in texts[form].replace("$\\pm$", "±"), form
    rows = pd.read_csv(io.StringIO(texts["csv"]))
    assert list(rows.columns)[-2:] == ["worst_task", "worst_task_ci"]
    assert dict(zip(rows["method"], rows["worst_task"], strict=True)) == {"stl": 82.0, "equal": 81.0}
    [table] = json.loads(texts["json"])["tables"]
    assert table["rows"][0]["worst_task"] == 82.0 and table["higher_is_better"]["worst_task"] is True
    assert "The main metric of the weakest task." in texts["html"], "its definition in the glossary"
    assert [row.metrics["worst"] for row in rows_of(results)] == [82.0, 81.0]

    shown = {column.name: column for column in columns(results.leaderboard(explained=False).tables["digits"])}
    assert shown["worst_task"].tested and shown["worst_task"].marked("best") == {0}


def test_a_new_section_is_one_file_and_in_every_format(record: Make, folder: Path) -> None:
    plugin = Path(shutil.copy(EXAMPLES / "hardest_task.py", folder))
    experiment = experiment_with(folder, plugin)
    results, texts = shown_in_every_format(experiment, record, folder)
    sentence = "On digits the methods are worst at digit0.accuracy: 81.5 on average."
    for form in ("terminal", "markdown", "latex", "html", "json"):
        assert "The hardest task" in texts[form] and "Tasks of digits" in texts[form], form
        assert sentence in texts[form].replace("\\_", "_"), form
    [section] = json.loads(texts["json"])["sections"]
    assert section["tables"][0]["rows"][0] == {"task": "digit0.accuracy", "mean": "81.50"}

    home = Home(folder / "home")
    for run in results.records:
        Ledger(home.ledger(experiment.name)).append(run)
    command = ("leaderboard", folder / "mine.yaml", "--home", home.root, "--section", "hardest_task", "--format")
    csv = mtlscale(*command, "csv")
    assert csv.code == 0, csv.stderr
    assert csv.stdout.splitlines()[:2] == ["task,mean", "digit0.accuracy,81.50"]
    alone = mtlscale(*command, "markdown").stdout
    assert alone.startswith("## The hardest task") and "## digits" not in alone
    wrong = mtlscale("leaderboard", folder / "mine.yaml", "--home", home.root, "--section", "hardest")
    assert wrong.code == 2 and "--section hardest: there is none; did you mean hardest_task" in wrong.stderr


def test_what_is_shipped_is_made_of_sections_too(board_records: list[RunRecord]) -> None:
    board = Leaderboard.from_records(board_records)
    whole = board.report(board_records, pairwise=True).text("markdown")
    parts = [board.report(board_records, pairwise=True, only=[key]).text("markdown") for key in ("tables", "pairs")]
    assert all(parts) and whole == "\n".join(parts)
    page = board.report(board_records).text("html")
    for key in ("facts", "provenance", "glossary"):
        [line, *_] = board.report(board_records, only=[key]).text("markdown").splitlines()
        assert line.removeprefix("- ").partition(":")[0] in page, key


def test_a_new_chart_is_one_file_on_the_page_and_among_the_pictures(record: Make, folder: Path) -> None:
    plugin = Path(shutil.copy(EXAMPLES / "hardest_task.py", folder))
    results, texts = shown_in_every_format(experiment_with(folder, plugin), record, folder)
    assert "Mean of each task of digits" in texts["html"]
    files = write_report(list(results.records), folder / "report", "mine", board=results.leaderboard(explained=False))
    assert files["hardest_task"].stat().st_size > 5_000
    assert "The hardest task" in files["markdown"].read_text()


def test_the_table_over_data_sets_is_on_the_first_screen_if_asked_for(board_records: list[RunRecord]) -> None:
    again = [record.model_copy(update={"dataset": "more"}) for record in board_records]
    board = Leaderboard.from_records([*board_records, *again])
    for asked in (False, True):
        report = board.report([*board_records, *again], overall=board.overall(), overall_asked=asked)
        tables = [section for section in sections(report, FIRST, [OVERALL]) if section.tables]
        assert bool(tables) == asked


def test_a_plugin_is_of_the_experiments_that_name_it_alone(record: Make, folder: Path) -> None:
    plugin = Path(shutil.copy(EXAMPLES / "worst_task.py", folder))
    results = results_of(experiment_with(folder, plugin), record, folder)
    assert "worst_task" in results.leaderboard(explained=False).to_csv()
    other = results_of(experiment_with(folder), record, folder)
    assert "worst_task" not in other.leaderboard(explained=False).to_csv()
    state = results.state()
    plugin.write_text(plugin.read_text().replace("min(", "max("))
    edited = results_of(experiment_with(folder, plugin), record, folder)
    assert edited.leaderboard(explained=False).tables["digits"].rows["worst_task"]["stl"] == 88.0
    assert edited.state() != state, "the report is written again"


RAISES = """from mtlscale.report import column, section

@column("broken", title="broken", better="higher", explain="nothing")
def broken(frame):
    raise ValueError("no luck\\ntoday")

@column("short", title="short", better="higher", explain="nothing")
def short(frame):
    return frame.main_values.min(axis=1)[:1]

@column("of_rows", title="rows", of="rows", explain="a text")
def of_rows(table, frame):
    return table.rows["average"].map(str) + "!"

@column("whole", title="whole", better="neither", explain="the runs")
def whole(frame):
    return [1.0] * len(frame.runs)

@section("torn", title="Torn")
def torn(view):
    yield "a text"
    yield 1 / 0

@section("empty", title="Empty")
def empty(view):
    yield from ()
"""


def test_a_column_that_raises_is_named_and_the_report_goes_on(record: Make, folder: Path) -> None:
    plugin = folder / "mine.py"
    plugin.write_text(RAISES)
    _, texts = shown_in_every_format(experiment_with(folder, plugin), record, folder)
    for form in ("markdown", "latex", "html", "json", "terminal"):
        text = " ".join(texts[form].replace("\\_", "_").split())
        assert "column broken of mine.py: ValueError: no luck" in text, form
        assert "column short of mine.py: ValueError: 1 values for 6 finished runs" in text, form
        assert "column of_rows of mine.py: ValueError: could not convert string to float" in text, form
        assert "section torn of mine.py: ZeroDivisionError: division by zero" in text, form
        assert "Empty" not in texts[form]
    assert "whole" in texts["csv"] and "broken" not in texts["csv"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('column("delta_i", title="x")(print)', "column delta_i is one of mtlscale; give yours another name"),
        ('column("my column", title="x")(print)', "its key should be a name of letters, digits and _"),
        ('column("method", title="x")(print)', "its key should be a name of letters, digits and _"),
        ('column("mine", titel="x")(print)', "titel"),
        ('section("similarity")(print)', "section similarity is one of mtlscale"),
    ],
)
def test_names_that_are_taken_are_refused(code: str, told: str, folder: Path) -> None:
    plugin = folder / "mine.py"
    plugin.write_text(f"from mtlscale.report import column, section\nimport mtlscale.report.columns.deltas\n"
                      f"import mtlscale.report.sections.similarity\n\ndef print(frame): ...\n\n{code}\n")  # fmt: skip
    with pytest.raises(UserError, match=re.escape(told)):
        experiment_with(folder, plugin)


def test_two_plugins_of_an_experiment_do_not_share_a_key(folder: Path) -> None:
    one, two = (Path(shutil.copy(EXAMPLES / "worst_task.py", folder / name)) for name in ("one.py", "two.py"))
    with pytest.raises(UserError, match=r"one.py and .*two.py both define the column worst_task"):
        experiment_with(folder, one, two)


def uncommon(record: Make) -> dict[str, list[RunRecord]]:
    """Data sets that have little to show."""
    nothing = {task: {"accuracy": float("nan")} for task in TASKS}
    some = {task: {"accuracy": 80.0} for task in TASKS}
    failed = {"status": "failed", "error": "worker died", "metrics": {}, "last": {}, "main_metrics": {}}
    return {
        "no numbers": [record(method, seed, nothing) for method in ("stl", "equal") for seed in range(3)],
        "one seed": [record(method, 0, some) for method in ("stl", "equal")],
        "one run": [record("equal", 0, some)],
        "two labels": [record(label, 0, some, run_id="same") for label in ("equal", "again")],
        "all failed": [record(method, 0, some, **failed) for method in ("stl", "equal")],
        "no metrics": [record("equal", 0, {})],
        "constant": [record(method, seed, some) for method in ("stl", "equal") for seed in range(3)],
    }


@pytest.mark.parametrize(
    "name", ["no numbers", "one seed", "one run", "two labels", "all failed", "no metrics", "constant"]
)
def test_little_to_show_is_no_traceback(name: str, record: Make) -> None:
    records = uncommon(record)[name]
    texts = texts_of(Leaderboard.from_records(records), records)
    methods = {run.method for run in records}
    assert {row["method"] for row in json.loads(texts["json"])["tables"][0]["rows"]} == methods
    for form, text in texts.items():
        assert "nan" not in re.sub(r"\w*nan\w+|\w+nan", "", text.lower().partition("<script")[0]), form


def test_all_of_them_together_are_a_leaderboard_too(record: Make) -> None:
    records = [
        run.model_copy(update={"dataset": name, "run_id": f"{name} {run.run_id}"})
        for name, runs in uncommon(record).items()
        for run in runs
    ]
    texts = texts_of(Leaderboard.from_records(records), records)
    assert all(name in texts["markdown"] for name in uncommon(record))


def test_the_manual_lists_every_column() -> None:
    page = reference.filled((ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8"))
    for one in definitions().values():
        if one.title:
            assert one.manual or one.explain, one.key
            assert f"`{one.title}`" in page, one.title
        if one.stored:
            assert one.numbers or one.explain, one.key
    listed = mtlscale("list", "columns").stdout
    assert "Δ flat %, Δ main %" in listed and "TASK.METRIC.in_units" in listed
    assert "delta_i" in mtlscale("list", "columns", "--json").stdout


def test_every_stored_column_is_defined(board_records: list[RunRecord]) -> None:
    rows = Leaderboard.from_records(board_records).tables["digits"].rows
    unknown = [name for name in rows if name.removesuffix("_ci") not in definitions() and "." not in name]
    assert not unknown
