"""`mtlscale leaderboard` over experiments, homes and MLflow: every form, every mistake, and in a real terminal."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import mtlscale, refused
from rich.cells import cell_len
from tracked import give_database, record_of, runs_of

import mtlscale as package
from mtlscale.config import Experiment
from mtlscale.records import Home, Ledger, RunRecord, write_atomically
from mtlscale.report import Leaderboard
from mtlscale.report.columns.shown import columns
from mtlscale.tracking import Tracker, service

FORMS = ("terminal", "markdown", "csv", "json", "latex", "html")
METHODS = ("stl", "equal", "a_method_with_a_name_as_long_as_36_signs", "mgda & <co> 100 %_{x}")


def records_of(experiment: str, dataset: str, tasks: int) -> Iterator[RunRecord]:
    names = [f"task{task}" for task in range(tasks)]
    for place, method in enumerate(METHODS):
        for seed in range(3):
            value = 1000.0 + 2.5 * place + 0.31 * seed * (place + 1)
            test = {"test": {name: {"abs_err": value + task} for task, name in enumerate(names)}}
            yield RunRecord(
                run_id=f"{experiment}{place}{seed}",
                experiment=experiment,
                dataset=dataset,
                method=method,
                seed=seed,
                status="finished",
                spec={"architecture": {"name": "hps"}, "balancer": {"name": method}, "seed": seed},
                fingerprint="f00d",
                higher_is_better={"abs_err": False},
                main_metrics=dict.fromkeys(names, "abs_err"),
                metrics=test,
                last=test,
                seconds=12.0,
                train_seconds=10.0,
                steps=100,
                samples=6400,
                peak_memory_mb=1234.0,
                parameters=123_456_789,
            )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Two experiments, on two data sets."""
    home = Home(tmp_path_factory.mktemp("homes") / "home")
    for experiment, dataset, tasks in (("first", "rooms", 3), ("second", "streets", 8)):
        for run in records_of(experiment, dataset, tasks):
            Ledger(home.ledger(experiment)).append(run)
    return home


def files_of(home: Home) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_every_row_and_no_home_is_written(form: str, home: Home, tmp_path: Path) -> None:
    before, output = files_of(home), tmp_path / "board.txt"
    done = mtlscale("leaderboard", home.root, "--format", form, "--pairwise", "--output", output)
    assert done.code == 0, done.stderr
    text = output.read_text(encoding="utf-8")
    assert "stl" in text and "a_method" in text.replace("\\_", "_").replace("\\", "")
    assert text == mtlscale("leaderboard", home.root, "--format", form, "--pairwise").stdout
    assert files_of(home) == before
    assert [path.name for path in tmp_path.iterdir()] == ["board.txt"]


def test_json_has_the_numbers_in_full_and_null_for_what_is_not_known(home: Home) -> None:
    found = json.loads(mtlscale("leaderboard", home.root, "--format", "json").stdout, parse_constant=pytest.fail)
    assert found["schema"] == 1 and [source["runs"] for source in found["sources"]] == [12, 12]
    board = Leaderboard.from_records(package.load_records(home.root))
    for table in found["tables"]:
        rows = board.tables[table["dataset"]].rows
        for row in table["rows"]:
            for column in ("delta_i", "delta_i_ci", "p_holm", "task1.abs_err", "departure"):
                expected = rows.loc[row["method"], column]
                assert row[column] == (None if expected != expected else expected)
            assert len(row["runs"]) == 3
        assert table["provenance"]["fingerprints"] == ["f00d"]
    assert len(found["overall"]["rows"]) == len(METHODS) and found["overall"]["sentence"]


def test_latex_has_no_mark_that_takes_effect(home: Home) -> None:
    text = mtlscale("leaderboard", home.root, "--format", "latex", "--pairwise").stdout
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert code.count(r"\begin{table}") == code.count(r"\end{table}") == 8  # all, 2 + 3 of data sets, 2 of pairs
    assert r"mgda \& \textless{}co\textgreater{} 100 \%\_\{x\}" in code
    plain = re.sub(r"\\[&%$#_{}]", "", code)
    assert plain.count("{") == plain.count("}") and plain.count("$") % 2 == 0
    assert (
        "_" not in plain and "#" not in plain and all(line.endswith("%") for line in plain.splitlines() if "%" in line)
    )
    captions = re.findall(r"\\caption\{(.*)\}\n  \\label\{(.*)\}", code)
    assert len(captions) == len({label for _, label in captions}) == 8
    assert all(len(caption) < 60 for caption, _ in captions)
    for block in re.findall(r"\\begin\{tabular\}\{(l+r*)\}(.*?)\\end", code, re.DOTALL):
        rows = [line for line in block[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(block[0]) - 1}
    assert all(ord(letter) < 128 for letter in code)


def test_columns_are_chosen_in_their_order(home: Home) -> None:
    text = mtlscale("leaderboard", home.root, "--columns", "runs,average,tasks", "--format", "markdown").stdout
    first, second = re.findall(r"^\| method.*$", text, re.MULTILINE)
    assert first.startswith("| method | runs | average | task0 | task1") and "Δ" not in first + second
    latex = ("leaderboard", home.root, "--dataset", "rooms", "--columns", "Δ", "--format", "latex", "--label", "tab:a")
    code = mtlscale(*latex).stdout
    assert code.count(r"\begin{table}") == 1 and r"\label{tab:a}" in code and r"method & $\Delta$ \% \\" in code
    assert "--columns avrage: no table has it; did you mean average" in refused(*latex[:4], "--columns", "avrage")
    assert "csv has all columns" in refused("leaderboard", home.root, "--columns", "runs", "--format", "csv")
    assert "--label a b" in refused("leaderboard", home.root, "--label", "a b", "--format", "latex")
    assert "--label a: labels are for --format latex" in refused("leaderboard", home.root, "--label", "a")


def test_csv_is_one_table(home: Home) -> None:
    def rows(*options: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(mtlscale("leaderboard", home.root, "--format", "csv", *options).stdout)))

    assert len(rows()) == 2 * len(METHODS)
    assert len(rows("--overall")) == len(METHODS)
    assert len(rows("--pairwise")) == 2 * len(METHODS) * (len(METHODS) - 1)
    assert {row["dataset"] for row in rows("--dataset", "ROOMS")} == {"rooms"}
    for option in ("", "--overall", "--pairwise"):
        assert "" not in rows(*option.split())[0]  # no column of numbers of rows


def test_places_are_homes_experiments_and_their_folders(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(*places: str | Path) -> str:
        return mtlscale("leaderboard", *places, "--format", "csv").stdout

    expected = first(f"{home.root}:first")
    assert expected.count("rooms") == len(METHODS)
    assert first("first", "--home", home.root.parent, "--home", home.root) == expected
    assert first(home.experiment("first")) == expected
    assert first("first", f"{home.root}:first", "--home", home.root) == expected  # each once
    monkeypatch.setenv("MTLSCALE_HOME", str(home.root))
    assert first("first") == expected
    assert first("first", "second") == first(home.root)


def test_the_format_follows_the_suffix(home: Home, tmp_path: Path) -> None:
    for suffix, begins in ((".md", "## "), (".csv", "dataset,"), (".json", "{"), (".tex", "% "), (".html", "<!")):
        output = tmp_path / f"board{suffix}"
        assert mtlscale("leaderboard", f"{home.root}:first", "--output", output).code == 0
        assert output.read_text(encoding="utf-8").lower().startswith(begins), suffix
    assert "choose terminal, markdown" in refused("leaderboard", home.root, "--format", "xml")
    assert "no format ends in '.xyz'" in refused("leaderboard", home.root, "--output", tmp_path / "a.xyz")
    assert mtlscale("leaderboard", home.root, "--format", "table").code == 0  # as it was called


def test_mistakes_are_one_line(home: Home, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases = {
        ("nowher",): "unknown experiment 'nowher'",
        ("firs", "--home", str(home.root)): "did you mean first",
        (str(tmp_path / "empty"),): "no runs of any experiment in this home folder",
        (f"{home.root}:third",): "no runs of third in",
        ("quickstart", "--home", str(home.root)): "no runs of quickstart in",
        ("./no/such/folder",): "is no experiment file, home folder, HOME:EXPERIMENT or MLflow URI",
        (f"sqlite:///{tmp_path}/none.db",): "there is no MLflow database",
        (str(home.root), "--method", "equale"): "did you mean equal",
        (str(home.root), "--dataset", "room"): "did you mean rooms",
        (str(home.root), "--seed", "5"): "--seed 5: no run has it: known: 0, 1, 2",
        (str(home.root), "--reference", "nobody"): "--reference nobody: no finished run of it",
        (str(home.root), "--rope", "0"): "--rope 0",
        (str(home.root), "--output", str(tmp_path / "no" / "a.csv")): "there is no folder",
        (str(home.root), "--output", str(tmp_path), "--format", "csv"): "is a folder",
    }
    for arguments, said in cases.items():
        assert said in refused("leaderboard", *arguments), arguments
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_read(home: Home, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in refused("leaderboard", home.root, "--output", tmp_path / "a.csv")


def test_an_mlflow_that_does_not_answer_is_waited_for_as_long_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert service._SECONDS <= 10
    monkeypatch.setattr(service, "_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        assert "no MLflow answers at" in refused("leaderboard", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - started < 60


def test_the_leaderboard_from_mlflow_alone_is_that_of_the_ledger(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment, home = small(seeds="[0, 1]"), Home(tmp_path / "home")
    give_database(home.root)
    tracker = Tracker(experiment, home)
    for number, run in enumerate(reversed(runs_of(experiment))):  # as they may end
        metrics = {task: {"accuracy": 50.1 + number / 7 + run.seed / 3} for task in ("a", "b")}
        record = record_of(run).model_copy(update={"metrics": {"val": metrics, "test": metrics}})
        write_atomically(home.run(run.run_id) / "record.json", record.model_dump_json().encode())
        Ledger(home.ledger(experiment.name)).append(record)
        tracker.finished(run, record, home.run(run.run_id))
    assert tracker.close() is None
    home.ledger(experiment.name).rename(tmp_path / "ledger.jsonl")
    uri = f"sqlite:///{home.root / 'mlflow.db'}"
    tracked = mtlscale("leaderboard", uri, "--format", "csv")
    assert tracked.code == 0, tracked.stderr
    assert mtlscale("leaderboard", f"{uri}#small", "--format", "csv").stdout == tracked.stdout
    assert "no experiment 'large'" in refused("leaderboard", f"{uri}#large")
    (tmp_path / "ledger.jsonl").rename(home.ledger(experiment.name))
    listed = mtlscale("leaderboard", home.root, "--format", "csv")
    both = mtlscale("leaderboard", home.root, uri, "--format", "csv")
    for text in (listed.stdout, both.stdout):
        assert sorted(text.splitlines()) == sorted(tracked.stdout.splitlines())


# Imports are what a process of this command takes longest for: each drawing is a fork of one that has them.
DRAW = """
import base64, fcntl, json, os, pty, struct, sys, termios
import pandas, scipy.stats, mtlscale.cli, mtlscale.execution.planning.plan
import mtlscale.report.rendered, mtlscale.report.overall.multi_dataset
import mtlscale.report.formats.terminal

for line in sys.stdin:
    columns, arguments, environment = json.loads(line)
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        for key in ("COLUMNS", "LINES", "NO_COLOR"):
            os.environ.pop(key, None)
        os.environ.update(environment, TERM="xterm-256color")
        sys.argv = ["mtlscale", *arguments]
        mtlscale.cli.main()
        sys.exit(0)
    drawn = b""
    try:
        while part := os.read(terminal, 65536):
            drawn += part
    except OSError:  # what Linux answers when the other end is closed
        pass
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, base64.b64encode(drawn).decode()]), flush=True)
"""

Draw = Callable[..., str]


@pytest.fixture(scope="module")
def in_a_terminal() -> Iterator[Draw]:
    """Return what a command draws on a real terminal of so many columns."""
    process = subprocess.Popen([sys.executable, "-c", DRAW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    to, answers = process.stdin, process.stdout
    assert to is not None and answers is not None

    def draw(columns: int, *arguments: str | Path, **environment: str) -> str:
        to.write(json.dumps([columns, [*map(str, arguments)], environment]) + "\n")
        to.flush()
        code, drawn = json.loads(answers.readline())
        text = base64.b64decode(drawn).decode().replace("\r\n", "\n")
        assert code == 0, text
        return text

    yield draw
    to.close()
    assert process.wait(60) == 0
    answers.close()


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.mark.parametrize("width", [80, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 160))])
def test_nothing_is_cut_off_in_a_terminal(width: int, home: Home, in_a_terminal: Draw) -> None:
    drawn = in_a_terminal(width, "leaderboard", home.root, "--wide", "--pairwise")
    assert "\x1b[1m" in drawn
    text = ESCAPES.sub("", drawn)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "…" not in text
    board = Leaderboard.from_records(package.load_records(home.root))
    for table in board.tables.values():
        wanted = [*METHODS, *(text for column in columns(table) for text in (column.header, *column.texts))]
        for one in wanted:
            assert any(one in line for line in lines), one


def test_the_first_screen_is_short_and_says_where_the_rest_is(home: Home, in_a_terminal: Draw, tmp_path: Path) -> None:
    plain = in_a_terminal(80, "leaderboard", home.root, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)  # no colour; bold may stay
    lines = ESCAPES.sub("", plain).splitlines()
    assert max(map(cell_len, lines)) <= 80 and len(lines) <= 2 * (len(METHODS) + 12)
    assert lines[-1] == "page: add --output page.html (all tables here: --wide)"
    assert sum("docs/leaderboard.md" in line for line in lines) == 1
    heads = [line.split() for line in lines if line.startswith("method ")]
    assert heads == [["method", "average", "Δ", "%", "vs", "equal", "p", "runs"]] * 2
    wide = ESCAPES.sub("", in_a_terminal(160, "leaderboard", home.root, NO_COLOR="1")).splitlines()
    assert max(map(cell_len, wide[2:])) <= 160 and "page: add" in wide[-1]

    page = home.experiment("first") / "leaderboard.html"
    page.write_text("<!doctype html>")
    said = mtlscale("leaderboard", f"{home.root}:first").stdout.splitlines()[-1]
    page.unlink()
    assert said == f"page: {page} (all tables here: --wide)"
    narrow = in_a_terminal(160, "leaderboard", home.root, COLUMNS="60")
    assert max(map(cell_len, ESCAPES.sub("", narrow).splitlines())) <= 60


def test_what_is_asked_for_stands_beside_the_first_screen(home: Home) -> None:
    def said(*options: str) -> str:
        return mtlscale("leaderboard", home.root, *options).stdout

    first = said()
    assert "All 2 data sets" not in first and "Over 2 data sets" in first
    assert "All 2 data sets" in said("--overall") and "Over 2 data sets" not in said("--no-overall")
    assert "every pair" in said("--pairwise") and "every pair" not in first
    assert "page: " not in said("--wide") and "s/run" in said("--wide") and "s/run" not in first


def test_columns_say_how_wide_a_pipe_is(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def widest() -> int:
        return max(map(cell_len, mtlscale("leaderboard", home.root, "--wide").stdout.splitlines()))

    monkeypatch.delenv("COLUMNS", raising=False)
    assert 80 < widest() <= 120
    monkeypatch.setenv("COLUMNS", "70")
    assert widest() <= 70
