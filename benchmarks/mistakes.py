"""What new users do wrong, and what they are told: 225 mistakes through the command line, in this process.

    python benchmarks/mistakes.py            # the table, and every mistake that is not answered well
    python benchmarks/mistakes.py plugins    # of one kind

A mistake is answered well where the command ends with status 2 and one line that matches what it should say; what is
no mistake has to be accepted. A command that accepts a mistake without the word it should say is silently wrong.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

VERDICTS = ("good", "unclear", "traceback", "silently wrong")
KINDS = ("tables", "experiment files", "texts", "plugins", "commands")
Columns = dict[str, list[object]]
Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Mistake:
    """One command. `says` is what its one line has to match; `accepted`: it is no mistake, and its output matches."""

    kind: str
    what: str
    arguments: tuple[str, ...]
    says: str
    files: Files = field(default_factory=dict)
    accepted: bool = False


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    mistake: Mistake
    verdict: str
    text: str


def judged(mistake: Mistake) -> Answer:
    """Run a mistake in a folder of its own and judge the answer."""
    with tempfile.TemporaryDirectory(prefix="mistake-") as folder, contextlib.chdir(folder):
        for name, content in mistake.files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        code, out, error = _command(mistake.arguments)
        if Path("home/runs").exists() and code == 2:
            return Answer(mistake, "silently wrong", "left runs behind")

    lines = error.strip().splitlines()
    matches = re.search(mistake.says, f"{error}\n{out}" if code != 2 else error, re.IGNORECASE | re.DOTALL)
    if code == -1 or "Traceback" in error:
        verdict = "traceback"
    elif mistake.accepted or code == 0:
        verdict = "good" if code == 0 and matches else "silently wrong" if code == 0 else "unclear"
    else:
        verdict = "good" if code in (1, 2) and len(lines) <= 1 and matches else "unclear"
    return Answer(mistake, verdict, lines[-1] if lines else " ".join(out.split())[-200:])


def _command(arguments: tuple[str, ...]) -> tuple[int, str, str]:
    """The exit status, output and messages of a command; status -1 for what no user should see."""
    from mtlscale.cli import main

    out, error = io.StringIO(), io.StringIO()
    given = patch.object(sys, "argv", ["mtlscale", *arguments])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), given:
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            error.write(traceback.format_exc())
            code = -1
    return code, out.getvalue(), error.getvalue()


# -- tables ------------------------------------------------------------------------------------------------------------


def _columns(rows: int = 60) -> Columns:
    numbers = range(rows)
    return {
        "task": ["ab"[row % 2] for row in numbers],
        "x1": [round((row * 7919 % 1009) / 100, 3) for row in numbers],
        "x2": [round((row * 104729 % 997) / 100, 3) for row in numbers],
        "target": [row // 2 % 2 for row in numbers],
    }


def _csv(change: Callable[[Columns], object] = lambda columns: None, rows: int = 60, separator: str = ",") -> str:
    columns = _columns(rows)
    change(columns)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _cell(column: str, value: object, row: int = 40) -> Callable[[Columns], object]:
    return lambda columns: columns[column].__setitem__(row, value)


def _column(name: str, value: Callable[[int], object]) -> Callable[[Columns], object]:
    return lambda columns: columns.__setitem__(name, [value(row) for row in range(len(columns["task"]))])


def _table(what: str, says: str, content: str | bytes, *options: str, accepted: bool = False) -> Mistake:
    given = [part for option in options for part in ("--option", option)]
    arguments = ("prepare", "table", "--source", "t.csv", "--home", "home", *given)
    return Mistake("tables", what, arguments, says, {"t.csv": content}, accepted)


def tables() -> Iterator[Mistake]:
    """Mistakes in tables, and tables that only look like one."""
    plain = _csv()
    melted = [(task, x, row) for row, x in enumerate(_columns()["x1"]) for task in "ab"]
    for what, content in {
        "nothing wrong": plain,
        "a byte order mark": "\ufeff" + plain,
        "CRLF": plain.replace("\n", "\r\n"),
        "quoted cells": plain.replace("a,", '"a",'),
        "text targets": _csv(_column("target", lambda row: "yes" if row // 2 % 2 else "no")),
        "numbers and words as targets": _csv(_column("target", lambda row: "1" if row // 2 % 2 else "b")),
        "spaces in names of tasks": _csv(_column("task", lambda row: f"task {row % 2}")),
        "a slash in the name of a task": _csv(_column("task", lambda row: f"a/{row % 2}")),
    }.items():
        yield _table(what, "target|task|cross_entropy", content, accepted=True)

    yield _table(
        "0.0, 1.0 as classes", "cross_entropy", _csv(_column("target", lambda r: r // 2 % 2 / 1)), accepted=True
    )
    yield _table("regression", "mse", _csv(_column("target", lambda r: r / 7)), accepted=True)
    for what, value, says in (
        ("an empty cell", "", "row 4[0-2] .*no value.*x1"),
        ("inf", "inf", "infinite"),
        ("-inf", "-inf", "infinite"),
        ("a word", "many", "x1.*(string|text|number)"),
        ("a decimal comma", "1,5", "x1.*(string|text|number|comma)"),
    ):
        yield _table(f"{what} as a feature", says, _csv(_cell("x1", value)))
    yield _table(
        "dates in a column", "x1.*(date|time|string|number)", _csv(_column("x1", lambda r: f"2020-01-{r % 28 + 1:02}"))
    )
    yield _table("empty target", "target|class", _csv(_cell("target", "")))
    yield _table("empty task", "no value.*task|task.*(no value|empty|name)", _csv(_cell("task", "")))
    yield _table("semicolons", "semicolon|';'", _csv(separator=";"))
    yield _table("tabs", "tab|csv", _csv(separator="\t"))
    yield _table("decimal commas", "semicolon|comma|string", _csv(separator=";").replace(".", ","))
    yield _table("an Excel file", "text|excel|csv|zip", b"PK\x03\x04\x14\x00\x06\x00" + bytes(range(256)) * 8)
    yield _table("an empty file", "empty|no rows|no column", "")
    yield _table("a header alone", "no row|empty|0 rows|no sample", _csv(rows=0))
    yield _table("one row", "row|class|sample|label", _csv(rows=1))
    yield _table("two rows", "row|class|sample|label", _csv(rows=2))
    yield _table("a row that is longer", "column|row|line|value", plain + "a,1,2,1,5\n")
    yield _table("a row that is shorter", "column|row|line|value", plain + "a,1\n")
    yield _table("NUL bytes", "t.csv is not text: it contains NUL", plain.replace("b,", "b\0,").encode())
    yield _table("Latin-1", "utf-8|latin|é|byte", _csv(_column("task", lambda r: "bé"[r % 2])).encode("latin-1"))
    yield _table("an open quote", "quote|column|row|line|csv", plain + 'a,"1,2,1\n')
    yield _table("no task column", "no column 'task'", _csv(lambda columns: columns.pop("task")))
    yield _table("no target column", "no column 'target'", _csv(lambda columns: columns.pop("target")))
    yield _table("two columns of one name", "two columns named 'x1'", plain.replace("x2", "x1", 1))
    yield _table("a constant feature", "x1.*constant", _csv(_column("x1", lambda r: 3)))
    yield _table("10**18 + i", "float32|differences|precision|too large", _csv(_column("x1", lambda r: 10**18 + r)))
    yield _table("one label", "all labels.*1|one class|are 1|only", _csv(_column("target", lambda r: 1)))
    yield _table("whole numbers meant as numbers", "regression", _csv(_column("target", lambda r: 1000 + r)))
    yield _table("a class that a task lacks", "class|own", _csv(_column("target", lambda r: r % 2)))
    yield _table("a task of one row", "task.*c|c.*(row|sample|class)", plain + "c,1,2,1\n")
    yield _table("every row a task of its own", "task|sample|row", _csv(_column("task", lambda r: f"t{r}")))
    yield _table("rows twice", "test_inputs_in_train_or_val.*10", plain + plain.split("\n", 1)[1], accepted=True)
    yield _table(
        "melted without ids",
        "same|identical|one split|share|inputs",
        "task,x1,target\n" + "".join(f"{task},{x},{row % 3}\n" for task, x, row in melted),
        accepted=True,
    )
    yield _table(
        "a number of the row left in", "features.*number", _csv(_column("number", lambda r: r * r)), accepted=True
    )
    yield _table("a second target left in", "features.*other", _csv(_column("other", lambda r: r % 5)), accepted=True)
    yield _table("ids twice", "id.*twice|twice", _csv(_column("id", lambda r: r // 2)), "id=id")
    for option, says in {
        "target=label": "no column 'label'|label.*column",
        "task=kind": "no column 'kind'|kind.*column",
        "id=key": "no column 'key'|key.*column",
        "features=[x1, x3]": "no column 'x3'.*x1|x3",
        "features=x1": "features = 'x1' should be a list",
        "features=[task, x1]": "task",
        "target=[target, x9]": "x9|should be a text",
        "problem=regresion": "regresion.*regression",
        "classes=mine": "mine.*shared",
        "test=0": r"test = 0.* is outside",
        "test=1": r"test = 1.* is outside",
        "test=many": "test = 'many' should be a number",
        "validation=1.5": "validation = 1.5 is outside",
        "split=-1": "split = -1 is outside",
        "standardise=5": "standardise = 5 should be true or false",
        "targets=x": "targets = 'x' should be a mapping",
        "sep=;": "unknown option 'sep'",
    }.items():
        yield _table(option, says, plain, option)
    yield _table(
        "regression on words",
        "regression.*|string|text",
        _csv(_column("target", lambda r: "xy"[r % 2])),
        "problem=regression",
    )
    ways: tuple[tuple[str, str, Files], ...] = (
        ("u.csv", "u.csv does not exist", {}),
        ("folder", "holds a.csv, b.csv; name one", {"folder/a.csv": plain, "folder/b.csv": plain}),
        ("folder", "holds no file that ends in .csv", {"folder/a.md": plain}),
        ("t.txt", "neither .csv nor .parquet|convert|no table", {"t.txt": plain}),
        ("t.parquet", "parquet", {"t.parquet": plain}),
    )
    for source, says, files in ways:
        arguments = ("prepare", "table", "--source", source, "--home", "home")
        yield Mistake("tables", f"--source {source} ({says})", arguments, says, files)


# -- experiment files --------------------------------------------------------------------------------------------------

PLAIN = {"datasets": "[digits]", "methods": "[stl, equal]", "floors": "[]", "seeds": "[0]", "training": "{epochs: 1}"}


def _file(lines: Mapping[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in {**PLAIN, **lines}.items())


def _experiment(what: str, says: str, content: str | bytes, *settings: str, accepted: bool = False) -> Mistake:
    given = [part for setting in settings for part in ("--set", setting)]
    arguments = ("run", "x.yaml", "--dry-run", "--home", "home", *given)
    return Mistake("experiment files", what, arguments, says, {"x.yaml": content}, accepted)


def experiment_files() -> Iterator[Mistake]:
    """Mistakes in experiment files and in `--set`."""
    for lines, says in (
        ({"methods": "[single_task]"}, "stl"),
        ({"methods": "[uw]"}, "uncertainty"),
        ({"methods": "[ls]"}, "equal"),
        ({"methods": "[ew]"}, "equal"),
        ({"methods": "[hard_sharing]"}, "hps"),
        ({"methods": "[nashmtl]"}, "nash_mtl"),
        ({"methods": "[PCGrad]"}, "pcgrad"),
        ({"methods": "[pc-grad]"}, "pcgrad"),
        ({"methods": "[zzz]"}, "mtlscale list methods"),
        ({"methods": "stl"}, r"a list, such as \[stl"),
        ({"methods": "[]"}, "methods: .*(empty|at least)"),
        ({"methods": ""}, "a list"),
        ({"methods": "[stl, stl]"}, "'stl' appears twice"),
        ({"methods": "[{name: mgda, normalise: l2}]"}, "normalise.*did you mean normalize"),
        ({"methods": "[{name: mgda, normalize: l3}]"}, "l3"),
        ({"methods": "[{balancer: ls}]"}, "ls.*equal"),
        ({"methods": "[{label: ../x, name: stl}]"}, "file's name"),
        ({"datasets": "digits"}, r"a list, such as \[digits"),
        ({"datasets": "[digit]"}, "did you mean digits"),
        ({"datasets": "[{name: digits, negatives: 10}]"}, r"options: \{negatives: 10\}"),
        ({"datasets": "[{name: digits, options: {negative: 1}}]"}, "did you mean negatives"),
        ({"datasets": "[{name: digits, metrics: [rmse]}]"}, "'rmse' is not defined for loss"),
        ({"datasets": "[{name: digits, metrics: [success]}]"}, "'success'.*environments"),
        ({"datasets": "[{name: digits, metrics: [acc]}]"}, "accuracy"),
        ({"datasets": "[{name: digits, tasks: [digit10]}]"}, "unknown task 'digit10'"),
        ({"seeds": "3"}, r"a list, such as \[0, 1, 2\]"),
        ({"seeds": "[a]"}, "integer.*'a'"),
        ({"seeds": "[0, 0]"}, "a seed appears twice"),
        ({"seed": "1"}, "did you mean seeds"),
        ({"epochs": "3"}, "training.epochs"),
        ({"training": "{learning_rate: 1e-3}"}, "lr"),
        ({"training": "{device: cuda}"}, "resources.gpus_per_worker"),
        ({"training": "{epochs: 0}"}, "epochs.*1"),
        ({"training": "{epochs: 1.5}"}, "integer"),
        ({"training": "{lr: -1}"}, "lr.*greater than 0"),
        ({"training": "{lr: fast}"}, "number"),
        ({"training": "{optimizer: lamb}"}, "adam"),
        ({"training": "{epochs: 2, epochs: 3}"}, "twice"),
        ({"training": "5"}, "mapping"),
        ({"model": "{encoder: {name: mlp, layers: 2}}"}, "hidden"),
        ({"model": "{encoder: cnn}"}, "textcnn|mtlscale list encoders"),
        ({"search": "{space: {training.learning_rate: [1]}}"}, "lr"),
        ({"search": "{space: {lr: [1]}}"}, "training.lr"),
        ({"baseline": "single"}, "single"),
        ({"reference": "equals"}, "equals|equal"),
    ):
        yield _experiment(str(lines), says, _file(lines))

    yield _experiment("amp: off", "runs", _file({"training": "{epochs: 1, amp: off}"}), accepted=True)
    yield _experiment("--set amp=off", "runs", _file({}), "training.amp=off", accepted=True)
    yield _experiment("--set epoch", "^mtlscale: --set training.epoch=3", _file({}), "training.epoch=3")
    yield _experiment("--set alone", "KEY=VALUE", _file({}), "training.epochs")
    yield _experiment("a tab", "x.yaml:7: not valid YAML", _file({}) + "model:\n\tdropout: 0\n")
    yield _experiment("indentation", "x.yaml:.*not valid YAML|unknown key", _file({}) + " model: {}\n")


# -- texts -------------------------------------------------------------------------------------------------------------


def _rows(rows: int = 60, label: Callable[[int], object] = lambda row: ("yes", "no")[row % 2]) -> str:
    return "text\tlabel\n" + "".join(f"word{row} other{row % 7}\t{label(row)}\n" for row in range(rows))


def _tokens(rows: int = 60, sentence: str = "Anna B-PER\nlives O\nhere O\n\n") -> str:
    return "".join(sentence.replace("here", f"here{row}") for row in range(rows))


def _prepared(name: str, what: str, says: str, files: Files, *options: str, accepted: bool = False) -> Mistake:
    given = [part for option in options for part in ("--option", option)]
    return Mistake("texts", what, ("prepare", name, "--source", "raw", "--home", "home", *given), says, files, accepted)


def texts() -> Iterator[Mistake]:
    """Mistakes in texts with labels, and in words with tags."""
    one, plain = "tasks={a: a.tsv}", {"raw/a.tsv": _rows()}
    yield _prepared("text", "nothing wrong", "cross_entropy", plain, one, accepted=True)
    yield _prepared("text", "CRLF", "cross_entropy", {"raw/a.tsv": _rows().replace("\n", "\r\n")}, one, accepted=True)
    yield _prepared(
        "text", "Latin-1", "a", {"raw/a.tsv": _rows().replace("word", "wörd").encode("latin-1")}, one, accepted=True
    )
    for what, files, says, options in (
        ("no tasks", plain, "tasks", ()),
        ("a file that is not there", plain, "b.tsv", ("tasks={a: b.tsv}",)),
        ("an empty file", {"raw/a.tsv": ""}, "a.tsv|empty|row", (one,)),
        ("a header alone", {"raw/a.tsv": "text\tlabel\n"}, "a.tsv|task a|row", (one,)),
        ("another name of the text", plain, "sentence", (one, "text=sentence")),
        ("another name of the label", plain, "mood", ("tasks={a: {file: a.tsv, label: mood}}",)),
        ("a key nobody knows", plain, "did you mean label", ("tasks={a: {file: a.tsv, labels: label}}",)),
        ("one label", {"raw/a.tsv": _rows(label=lambda row: "yes")}, "class|label", (one,)),
        ("empty labels", {"raw/a.tsv": _rows(label=lambda row: "")}, "label|value", (one,)),
        ("an Excel file", {"raw/a.xlsx": b"PK\x03\x04" + bytes(99)}, "xlsx|tsv|csv", ("tasks={a: a.xlsx}",)),
        (
            "a JSONL row that is broken",
            {"raw/a.jsonl": '{"text": "x", "label": 1}\n{"text": \n'},
            "line|row|json|:2",
            ("tasks={a: a.jsonl}",),
        ),
        ("a row without a tab", {"raw/a.tsv": _rows() + "no tab here\n"}, "row|line|column|label", (one,)),
        ("tasks as a list", plain, "tasks.*mapping", ("tasks=[a.tsv]",)),
        ("a length of 0", plain, "length = 0 is outside", (one, "length=0")),
        ("an option nobody knows", plain, "unknown option", (one, "max_length=3")),
    ):
        yield _prepared("text", what, says, files, *options)

    tagged = {"raw/a/train.txt": _tokens(), "raw/a/dev.txt": _tokens(20), "raw/a/test.txt": _tokens(20)}
    own = "tasks={a: {train: a/train.txt, val: a/dev.txt, test: a/test.txt}}"
    yield _prepared("conll", "nothing wrong", "a", tagged, own, accepted=True)
    yield _prepared(
        "conll",
        "no blank lines",
        "cut",
        {**tagged, "raw/a/train.txt": _tokens(900, "Anna B-PER\nhere O\n")},
        own,
        accepted=True,
    )
    for what, files, says, options in (
        ("no tasks", tagged, "tasks", ()),
        ("a folder that is not there", tagged, "task b|b", ("tasks={b: {train: b/train.txt, test: b/test.txt}}",)),
        ("an empty file", {**tagged, "raw/a/train.txt": ""}, "train.txt|empty|sentence", (own,)),
        (
            "a line without a tag",
            {**tagged, "raw/a/train.txt": _tokens() + "word\n"},
            "train.txt line 241 has 1 column, no tag",
            (own,),
        ),
        ("a tag that training lacks", {**tagged, "raw/a/test.txt": _tokens(9, "here B-LOC\n\n")}, "B-LOC|LOC", (own,)),
        ("a key nobody knows", tagged, "unknown key", ("tasks={a: {train: a/train.txt, test: a/test.txt, tags: 1}}",)),
    ):
        yield _prepared("conll", what, says, files, *options)


# -- plugins -----------------------------------------------------------------------------------------------------------

BALANCER = '''from mtlscale.balancing import Balancer

class Mine(Balancer):
    """Mine."""
    name = "mine"
    {declared}
    def __call__(self, losses, gramian, state):
        {body}
'''

PIPELINE = '''import numpy as np
import pyarrow as pa
from mtlscale.config import SPLITS, Task, TaskSuite
from pipelines import Pipeline, Prepared

class Mine(Pipeline):
    """Mine."""
    name = "mine"
    needs_source = False

    def prepare(self, source, work):
        rng = np.random.default_rng(0)
        tasks = (Task(name="a", {task}),)
        tables = {{}}
        for split in SPLITS:
            n = 32
            ids = [f"{{split}}{{row}}" for row in range(n)]
            x = rng.normal(size=(n, 3)).astype(np.float32)
            y = rng.integers(0, 2, n)
            {change}
            inputs = pa.FixedSizeListArray.from_arrays(x.ravel(), x.shape[1])
            tables[split] = {{"a": pa.table({{"id": ids, "input": inputs, "target.a": y}})}}
        suite = TaskSuite(name="mine", tasks=tasks, inputs="per_task", input_kind="vector", input_shape=(3,))
        return Prepared(suite, {result})
'''
TASK = 'loss="cross_entropy", outputs=2, metrics=("accuracy",)'


def _balancer(
    says: str, body: str = "return losses * 0 + 1, state", declared: str = "", *, accepted: bool = False
) -> Mistake:
    content = BALANCER.format(declared=declared, body=body)
    lines = {"plugins": "[mine.py]", "methods": "[mine]"}
    arguments = ("run", "x.yaml", "--dry-run", "--home", "home")
    files = {"x.yaml": _file(lines), "mine.py": content}
    return Mistake("plugins", f"balancer: {declared} {body}", arguments, says, files, accepted)


def _pipeline(
    says: str, change: str = "pass", task: str = TASK, result: str = "tables", *, accepted: bool = False
) -> Mistake:
    content = PIPELINE.format(change=change, task=task, result=result)
    arguments = ("prepare", "mine", "--plugin", "mine.py", "--home", "home")
    what = f"pipeline: {change if change != 'pass' else task if task != TASK else result}"
    return Mistake("plugins", what, arguments, says, {"mine.py": content}, accepted)


def plugins() -> Iterator[Mistake]:
    """Mistakes in components of one's own."""
    yield _balancer("mine", accepted=True)
    yield _balancer("needs = 'gramian'", "return gramian.diagonal(), state")
    yield _balancer("weights (of mine )?are nan", "return losses * float('nan'), state")
    yield _balancer("weights (of mine )?are inf", "return losses * float('inf'), state")
    yield _balancer("returns a Tensor", "return losses")
    yield _balancer("returns 3 values", "return losses, state, 1")
    yield _balancer(r"returns weights of shape \[\]", "return losses.sum(), state")
    yield _balancer("returns weights a list", "return [1.0], state")
    yield _balancer("returns a state", "return losses, 3")
    yield _balancer(r"returns a NoneType", "pass")
    yield _balancer(r"mine.py:8: balancer mine: ValueError: no luck", "raise ValueError('no luck')")
    yield _balancer(r"mine.py:8: balancer mine: NameError", "return weight, state")
    yield _balancer("hessian.*losses, gramian", declared="needs = 'hessian'")
    yield _balancer("JacobianBalancer", declared="needs = 'jacobian'")
    yield _balancer("heads = 'max'", declared="heads = 'max'")
    yield _balancer("should be a word", declared="name = 'a/b'")
    yield _balancer("shipped balancer", declared="name = 'mgda'")
    yield _balancer("needs a default", declared="strength: float")
    yield _balancer("whole number", declared="results_version = 'new'")
    yield _balancer("cannot be imported: SyntaxError", "return (losses, state")
    for content, says in (
        ("x = 1\n", "defines no balancer"),
        ("import nothing_like_it\n", "mine.py:1 cannot be imported"),
    ):
        files = {"x.yaml": _file({"plugins": "[mine.py]"}), "mine.py": content}
        yield Mistake("plugins", content, ("run", "x.yaml", "--dry-run", "--home", "home"), says, files)

    yield _pipeline("a", accepted=True)
    yield _pipeline("label|class", "y = y + 5")
    yield _pipeline("label|class|number|integer|target", "y = [str(value) for value in y]")
    yield _pipeline("nan|finite|input|number", "x[3] = np.nan")
    yield _pipeline("in train and in val", "ids = [f'{row}' for row in range(n)]")
    yield _pipeline("two samples named train0", "ids[1] = ids[0]")
    yield _pipeline("input", "x = x[:, :2]")
    yield _pipeline("loss 'entropy'", task='loss="entropy", outputs=2, metrics=("accuracy",)')
    yield _pipeline("metric 'precise'|'precise'", task='loss="cross_entropy", outputs=2, metrics=("precise",)')
    yield _pipeline("train", result="{'test': tables['test']}")
    yield _pipeline("mine.py:.*ValueError: no luck", "raise ValueError('no luck')")
    yield _pipeline("mine.py:.*KeyError", "split = {}['rows']")


# -- commands ----------------------------------------------------------------------------------------------------------


def commands() -> Iterator[Mistake]:
    """Mistakes on the command line: options, names, homes, servers."""
    small: Files = {"x.yaml": _file({}), "file": "", "two.yaml": _file({"datasets": "[digits, synthetic]"})}
    many = _file({"resources": "{workers: 1000}"})
    for line, says in (
        ("run x.yaml --epochs 3", "--set training.epochs=3"),
        ("run x.yaml --lr 3", "--set training.lr=3"),
        ("run x.yaml --seeds 1", r"--set seeds=\[1\]"),
        ("run x.yaml --gpus 1", "--set resources.gpus_per_worker=1"),
        ("run x.yaml --quite", "--quiet"),
        ("run x.yaml --dryrun", "--dry-run"),
        ("rnu x.yaml", "run"),
        ("run", "missing argument"),
        ("run x.yaml y.yaml", "unexpected extra argument"),
        ("run y.yaml", "y.yaml does not exist"),
        ("run quikstart", "did you mean quickstart"),
        ("run zzzzzz", "mtlscale list experiments"),
        ("run file", "mapping"),
        ("run x.yaml --only mgda", "--only mgda: x has no such method"),
        ("run x.yaml --fast --dry-run", "drop one"),
        ("run x.yaml --home file", "is a file; name a folder"),
        ("run x.yaml --home file/below", "below the file"),
        ("run x.yaml --home /proc/nowhere", "cannot be written"),
        ("run x.yaml --source nowhere --home home", "source nowhere does not exist"),
        ("run x.yaml --address 127.0.0.1:1 --home home", "127.0.0.1:1"),
        ("prepare digits --storage s4://bucket --home home", "s4"),
        ("run many.yaml --dry-run --home home", "1000 workers"),
        ("sweep x.yaml", "has no `search`"),
        ("list balancer", "did you mean balancers"),
        ("list balancers mgdaa", "did you mean mgda"),
        ("list keys trainig", "did you mean training"),
        ("prepare digit", "did you mean digits"),
        ("prepare digits --set negatives=1", "--option KEY=VALUE"),
        ("prepare x.yaml --option negatives=1", "--set KEY=VALUE"),
        ("prepare digits --option negatives", "KEY=VALUE"),
        ("prepare digits --engine spark", "auto, ray or local"),
        ("prepare newsgroups --source nowhere", "nowhere does not exist"),
        ("diagnose digit", "did you mean digits"),
        ("diagnose digits --encoder lstn", "did you mean lstm"),
        ("diagnose digits --lr 0", "--lr 0"),
        ("diagnose two.yaml", "several data sets"),
        ("leaderboard x.yaml --home home", "no runs of x"),
        ("leaderboard nowher --home home", "unknown experiment|mtlscale list experiments"),
        ("leaderboard x.yaml --format pdf --home home", "pdf.*terminal|format"),
        ("show 13a2 --home home", "no runs in .*home; name another --home"),
        ("export 13a2 model --home home", "no runs in .*home; name another --home"),
        ("predict nowhere x.csv", "nowhere"),
        ("submit x.yaml --home results", "own folder"),
        ("submit x.yaml --home /results --address http://127.0.0.1:1", "no Ray job server answers"),
        ("run x.yaml --dry-run --home home --set tracking.uri=folder", "tracking.uri|mlflow|run"),
    ):
        yield Mistake("commands", line, tuple(line.split()), says, {**small, "many.yaml": many})


def mistakes() -> list[Mistake]:
    """Return all mistakes, kind after kind."""
    return [*tables(), *experiment_files(), *texts(), *plugins(), *commands()]


def shown(answers: list[Answer]) -> str:
    """Return the table kind x verdict, and what is not answered well."""
    counts = Counter((answer.mistake.kind, answer.verdict) for answer in answers)
    rows = [("kind", "all", *VERDICTS)]
    for kind in KINDS:
        numbers = [counts[kind, verdict] for verdict in VERDICTS]
        rows.append((kind, str(sum(numbers)), *map(str, numbers)))
    totals = [sum(counts[kind, verdict] for kind in KINDS) for verdict in VERDICTS]
    rows.append(("all", str(sum(totals)), *map(str, totals)))
    lines = [f"{row[0]:<18}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in rows]
    for answer in answers:
        if answer.verdict != "good":
            what = " ".join(answer.mistake.what.split())
            lines += [f"{answer.verdict}: {answer.mistake.kind}: {what[:100]}", f"    wanted {answer.mistake.says}"]
            lines.append(f"    {answer.text[:300]}")
    return "\n".join(lines)


def main() -> None:
    os.environ.setdefault("COLUMNS", "200")
    kinds = sys.argv[1:] or KINDS
    answers = [
        judged(mistake) for mistake in mistakes() if mistake.kind.split()[0] in {kind.split()[0] for kind in kinds}
    ]
    print(shown(answers))
    sys.exit(any(answer.verdict in ("traceback", "silently wrong") for answer in answers))


if __name__ == "__main__":
    main()
