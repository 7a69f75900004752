"""What new users do wrong, and what they are told: 576 mistakes through the command line and Python, in this process.

    python benchmarks/run.py mistakes            # the table, and every mistake that is not answered well
    python benchmarks/run.py mistakes plugins    # of one kind

All of them were answered well in the end, since each kind was mended until it was: the figure is one of a training set.
Of 218 that were written in one go, such as `shorthands` and `other_commands`, 146 were answered well at the first try
(67 %), 63 unclearly, 4 by a traceback, and 5 were silently wrong. Of 219 later ones (`typed` is a part), 180
were answered well at the first try (82 %), 25 unclearly, 8 by a traceback, and 6 were silently wrong.

A mistake is answered well where the command ends with status 2 and one line that matches what it should say; what is
no mistake has to be accepted. A command that accepts a mistake without the word it should say is silently wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
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
from typing import Any
from unittest.mock import patch

VERDICTS = ("good", "unclear", "traceback", "silently wrong")
KINDS = ("tables", "experiment files", "texts", "plugins", "own loops", "Python", "predictions", "commands")
MODEL = "MODEL"  # stands for a folder with an exported model
# Words of the libraries below that no user should have to read.
JARGON = re.compile(
    r"tuple\[|pydantic|Input should|NoneType|should match pattern|<class|object at 0x|literal\[", re.IGNORECASE
)
Change = Callable[[dict[str, list[object]]], object]
Columns = dict[str, list[object]]
Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Mistake:
    """One command, or some lines of Python.

    `says` is what its one line has to match; `accepted`: it is no mistake, and its output matches.
    """

    kind: str
    what: str
    arguments: tuple[str, ...]
    says: str
    files: Files = field(default_factory=dict)
    accepted: bool = False
    code: str = ""  # Python instead of a command


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
        code, out, error = _script(mistake.code) if mistake.code else _command(mistake.arguments)
        if Path("home/runs").exists() and code == 2:
            return Answer(mistake, "silently wrong", "left runs behind")

    lines = error.strip().splitlines()
    matches = re.search(mistake.says, f"{error}\n{out}" if code != 2 else error, re.IGNORECASE | re.DOTALL)
    if code == -1 or "Traceback" in error:
        verdict = "traceback"
    elif mistake.accepted or code == 0:
        verdict = "good" if code == 0 and matches else "silently wrong" if code == 0 else "unclear"
    else:
        clear = len(lines) <= 1 and matches and not JARGON.search(error)
        verdict = "good" if code in (1, 2) and clear else "unclear"
    return Answer(mistake, verdict, lines[-1] if lines else " ".join(out.split())[-200:])


def _command(arguments: tuple[str, ...]) -> tuple[int, str, str]:
    """The exit status, output and messages of a command; status -1 for what no user should see."""
    from mtlscale.cli import main

    out, error = io.StringIO(), io.StringIO()
    arguments = tuple(exported_model() if argument == MODEL else argument for argument in arguments)
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


def _script(code: str) -> tuple[int, str, str]:
    """The same for lines of Python: status 2 for a `UserError`."""
    from mtlscale import UserError
    from mtlscale.training.gradients.step_stats import Diverged

    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            exec(compile(code, "script.py", "exec"), {"__name__": "script"})
            status = 0
        except (UserError, Diverged) as mistake:  # the two that the documents name
            error.write(str(mistake))
            status = 2
        except BaseException:
            error.write(traceback.format_exc())
            status = -1
    return status, out.getvalue(), error.getvalue()


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
    other = {**tagged, "raw/a/test.txt": _tokens(9, "here B-LOC\n\n")}
    yield _prepared("conll", "a tag that training lacks", "tags_not_in_training", other, own, accepted=True)
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
    yield _balancer("returns nothing", "pass")
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


# -- what other strangers wrote ----------------------------------------------------------------------------------------


def _number(row: int) -> float:
    return round((row * 7919 % 1009) / 7, 2)


def _letter(row: int) -> str:
    return "ab"[row // 2 % 2]


def _inspected(
    what: str, says: str, change: Change, *arguments: str, accepted: bool = False, rows: int = 60
) -> Mistake:
    """Return a mistake in a table that `inspect` looks at; its target is `target`, unless `arguments` name others."""
    given = arguments if "--targets" in arguments else ("--targets", "target", *arguments)
    files = {"t.csv": _csv(change, rows)}
    return Mistake("tables", f"inspect: {what}", ("inspect", "t.csv", *given), says, files, accepted)


def _unchanged(columns: Columns) -> None: ...


def inspected() -> Iterator[Mistake]:
    """Mistakes in tables that `inspect` looks at, and in its options."""
    reported = (  # a table is accepted with a warning that says so
        ("thousands in a target", "target.*(thousand|number)", lambda r: f"{1000 + r * 7:,}"),
        ("units in a target", "target.*(unit|kg|number)", lambda r: f"{_number(r)} kg"),
        ("currency in a target", "target.*(\\$|currency|unit|number)", lambda r: f"${_number(r)}"),
        ("percent in a target", "target.*(%|percent|number)", lambda r: f"{r * 7 % 100} %"),
        ("a sentinel in a target", "target.*-999", lambda r: -999 if r % 9 == 0 else _number(r)),
        ("a large sentinel in a target", "target.*9999", lambda r: 9999 if r % 9 == 0 else r % 37 / 7),
        ("spellings of a class", "target.*(yes|spell)", lambda r: ("Yes", "yes", "no", "YES ", "no")[r % 5]),
        ("umlauts spelt twice", "target.*(spell|Grün|grün)", lambda r: ("Grün", "grün", "rot", "rot")[r % 4]),
        ("an ISO date as a target", "target.*(date|day)", lambda r: f"2020-{r % 12 + 1:02}-{r % 28 + 1:02}"),
        ("a German date as a target", "target.*(date|day)", lambda r: f"{r % 28 + 1:02}.{r % 12 + 1:02}.2020"),
        ("a time stamp as a target", "target.*(date|time)", lambda r: f"2020-01-{r % 28 + 1:02} 12:{r % 60:02}:00"),
        ("a constant target", "target.*(constant|always)", lambda r: 3.5),
        ("a class of one row", "target.*(one row|1 row|rare|c\\b)", lambda r: "c" if r == 7 else "ab"[r // 2 % 2]),
        ("an id as a target", "target.*(differ|id|class|every row)", lambda r: f"id-{r:04}"),
        ("99 % of a target empty", "target.*(empty|labels|no value)", lambda r: _number(r) if r < 1 else ""),
        (
            "marks for no value in a target",
            "target.*(missing|empty|no value|-)",
            lambda r: _number(r) if r % 9 else "-",
        ),
    )
    for what, says, value in reported:
        yield _inspected(what, says, _column("target", value), accepted=what not in _REFUSED)
    for what, says, change in (
        ("a target in other units", "x3.*(target|leak|gives)", lambda c: _both(c, _number, lambda y: y * 1000)),
        ("a target with noise", "x3.*(target|leak|gives)", lambda c: _both(c, _number, lambda y: y + y * 37 % 1 / 100)),
        ("a target in classes", "x3.*(target|leak|gives)", lambda c: _both(c, _letter, str.upper)),
        ("a constant input", "x1.*constant", _column("x1", lambda r: 3)),
        ("an input without values", "x1.*(empty|no value)", _column("x1", lambda r: "")),
        ("a sentinel in an input", "x1.*-999", _column("x1", lambda r: -999 if r % 9 == 0 else _number(r))),
        ("an input with units", "x1.*(unit|kg|number)", _column("x1", lambda r: f"{_number(r)} kg")),
    ):  # fmt: skip
        yield _inspected(what, says, change, accepted=True)
    yield _inspected("six rows", "6 (rows|samples).*|1 test", _unchanged, accepted=True, rows=6)
    yield _inspected("twelve rows", "(test|few).*(row|sample)", _unchanged, accepted=True, rows=12)
    for what, says, targets in (
        ("another case", "did you mean target", ("Target",)),
        ("a kind that is none", "class, regression", ("target:number",)),
        ("a misspelt kind", "class, regression", ("target:regresion",)),
        ("no name", "name.*(target|column)", ("",)),
        ("more columns than there are", "last:99|4 columns", ("last:99",)),
        ("a pattern that fits nothing", "Z\\*.*(column|fits)", ("Z*",)),
        ("names with blanks between", "comma|again|target,x1", ("target x1",)),
        ("all columns", "(input|no column)", ("*",)),
        ("a number", "column|first:1|last:1", ("3",)),
    ):
        arguments = [part for text in targets for part in ("--targets", text)]
        yield _inspected(f"--targets {targets}: {what}", says, _unchanged, *arguments)
    yield _inspected("two targets without --targets", "--targets A,B", _unchanged,
                     "--targets", "x1", "target")  # fmt: skip
    yield _inspected(
        "--targets twice", "target +x1|x1", _unchanged, "--targets", "x1", "--targets", "target", accepted=True
    )
    yield _inspected("--write of another kind", "\\.yaml", _unchanged, "--write", "t.txt")
    yield _inspected("--write into no folder", "nowhere", _unchanged, "--write", "nowhere/t.yaml")
    yield _inspected("--option without a value", "KEY=VALUE", _unchanged, "--option", "header")
    yield _inspected("--option of another name", "did you mean", _unchanged, "--option", "heeader=false")
    plain = _csv()
    arff = "@relation t\n@attribute x1 numeric\n@attribute target {a,b}\n@data\n" + "".join(
        f"{row / 7:.3f},{'ab'[row // 2 % 2]}\n" for row in range(60)
    )
    for what, says, file, files, accepted in (
        ("an experiment file", "experiment file|mtlscale run", "x.yaml", {"x.yaml": _file({})}, False),
        ("a plugin", "\\.py|neither", "mine.py", {"mine.py": "x = 1\n"}, False),
        ("a folder of tables", "a.csv", "folder", {"folder/a.csv": plain, "folder/b.csv": plain}, False),
        ("a table beside its test", "t-test", "t-train.csv", {"t-train.csv": plain, "t-test.csv": plain}, True),
        (
            "an ARFF beside its labels",
            "t.xml.*multilabel",
            "t-train.arff",
            {"t-train.arff": arff, "t-test.arff": arff, "t.xml": '<labels><label name="target"></label></labels>'},
            True,
        ),
        ("units below the header", "row 1|unit|second line|line 2", "u.csv", {"u.csv": _with_units(plain)}, True),
    ):
        arguments = ("inspect", file, *(() if accepted is False else ("--targets", "target")))
        yield Mistake("tables", f"inspect: {what}", arguments, says, files, accepted)


_REFUSED = (
    "99 % of a target empty",
    "an ISO date as a target",
    "a German date as a target",
    "a time stamp as a target",
    "a constant target",
)


def _both(columns: Columns, target: Callable[[int], Any], copy: Callable[[Any], Any]) -> None:
    """Give the table a target, and an input x3 that is made of it."""
    columns["target"] = [target(row) for row in range(len(columns["task"]))]
    columns["x3"] = list(map(copy, columns["target"]))


def _with_units(table: str) -> str:
    header, rest = table.split("\n", 1)
    return f"{header}\n-,cm,kg,-\n{rest}"


def shorthands() -> Iterator[Mistake]:
    """What people write for lists, mappings, ranges and names of another kind in experiment files."""
    for lines, says in (
        ({"seeds": "0-4"}, r"seeds.*\[0, 1, 2, 3, 4\]"),
        ({"seeds": "range(5)"}, r"seeds.*\[0, 1, 2, 3, 4\]"),
        ({"seeds": "0..4"}, r"seeds.*\[0, 1, 2, 3, 4\]"),
        ({"seeds": "0:5"}, r"seeds.*list, such as \[0, 1, 2"),
        ({"seeds": "'0,1,2'"}, r"seeds.*\[0, 1, 2\]"),
        ({"seeds": "0 1 2"}, r"seeds.*\[0, 1, 2\]"),
        ({"seeds": "[0-4]"}, r"seeds.*\[0, 1, 2, 3, 4\]"),
        ({"seeds": "{from: 0, to: 4}"}, r"seeds.*a list, such as \[0, 1, 2"),
        ({"seeds": "five"}, r"seeds.*a list, such as \[0, 1, 2"),
        ({"methods": "'stl, equal'"}, r"methods.*a list, such as \[stl, equal"),
        ({"methods": "{stl: {}, equal: {}}"}, r"methods.*a list, such as \[stl, equal"),
        ({"methods": "[{mgda: {normalize: l2}}]"}, r"\{name: mgda, normalize: l2\}"),
        ({"methods": "[{mgda: l2}]"}, r"\{name: mgda"),
        ({"methods": "['mgda: {normalize: l2}']"}, r"\{name: mgda"),
        ({"methods": "[mgda(normalize=l2)]"}, r"\{name: mgda, normalize: l2\}"),
        ({"methods": "[mgda+stl]"}, "mgda.*(architecture|balancer)|nearest|did you mean"),
        ({"methods": "[mlp]"}, "mlp.*(it )?is an encoder"),
        ({"methods": "[digits]"}, "digits.*(it )?is a data set"),
        ({"methods": "[adam]"}, "adam.*(optimizer|optimiser)"),
        ({"methods": "[{architecture: pcgrad}]"}, "pcgrad.*(it )?is a balancer"),
        ({"methods": "[{balancer: mmoe}]"}, "mmoe.*(it )?is an architecture"),
        ({"methods": "[{architecture: textcnn}]"}, "textcnn.*(it )?is an encoder"),
        ({"datasets": "{digits: {negatives: 10}}"}, r"datasets.*a list, such as \["),
        ({"datasets": "[{digits: {negatives: 10}}]"}, r"\{name: digits, options: \{negatives: 10\}\}"),
        ({"datasets": "[mgda]"}, "mgda.*(it )?is a balancer"),
        ({"datasets": "[mlp]"}, "mlp.*(it )?is an encoder"),
        ({"datasets": "[digits.csv]"}, "inspect digits.csv|table"),
        ({"datasets": "[{name: digits, metrics: accuracy}]"}, r"datasets.0.metrics: .*list, such as \[accuracy\]"),
        ({"datasets": "[{name: digits, metrics: {digit0: accuracy}}]"}, r"datasets.0.metrics: .*list.*\[accuracy\]"),
        ({"datasets": "[{name: digits, tasks: digit0}]"}, r"datasets.0.tasks: .*list, such as \[digit0\]"),
        ({"datasets": "[{name: digits, options: [negatives]}]"}, "options.*mapping"),
        ({"training": "{lr: [1e-3, 1e-2]}"}, "training.lr.*(search|one number)"),
        ({"training": "{lr: 1e-3..1e-2}"}, "training.lr.*number"),
        ({"training": "{lr: {low: 1e-4, high: 1e-2}}"}, "training.lr.*search: .*space"),
        ({"training": "{optimizer: {name: adam, lr: 0.1}}"}, "training.optimizer.*(adam|text|name)"),
        ({"training": "{optimizer: Adam}"}, "did you mean adam|adam"),
        ({"training": "{optimizer: mgda}"}, "optimizer.*(adam|sgd)"),
        ({"training": "{epochs: 10 epochs}"}, "training.epochs.*(integer|number).*10 epochs"),
        ({"training": "{epochs: '${EPOCHS}'}"}, r"training.epochs.*\$\{EPOCHS\}.*(--set|variable|integer)"),
        ({"training": "{batch_size: auto}"}, "training.batch_size.*(integer|number)"),
        ({"training": "[epochs, 5]"}, "training.*mapping, such as"),
        ({"training": "{amp: yes}"}, "training.amp.*(bf16|bfloat16|off)"),
        ({"model": "mlp"}, r"model.*mapping, such as \{encoder: mlp\}"),
        ({"model": "{encoder: {name: mlp, hidden: 64}}"}, r"hidden.*list"),
        ({"model": "{encoder: mgda}"}, "mgda.*(it )?is a balancer"),
        ({"model": "{encoder: [mlp]}"}, "encoder.*(name|mlp)"),
        ({"floors": "constant"}, r"floors.*list, such as \[constant\]"),
        ({"floors": "none"}, r"floors.*(list|\[\])"),
        ({"floors": "[mgda]"}, "floors.*(constant|linear)"),
        ({"search": "true"}, "search.*mapping, such as"),
        ({"search": "8"}, r"search.*mapping, such as \{budget: 8\}"),
        ({"search": "{space: {training.lr: 1e-4..1e-2}}"}, "low.*high"),
        ({"search": "{space: {training.lr: {min: 1e-4, max: 1e-2}}}"}, "low"),
        ({"search": "{space: {training.lr: 'log(1e-4, 1e-2)'}}"}, "low.*high"),
        ({"search": "{budget: [4]}"}, "search.budget.*integer"),
        ({"search": "{strategy: bayes}"}, "strategy|search"),
        ({"resources": "gpu"}, "resources.*mapping"),
        ({"resources": "{gpus: 1}"}, "gpus_per_worker"),
        ({"resources": "{workers: auto}"}, "resources.workers.*integer"),
        ({"tracking": "off"}, r"tracking.*\{enabled: false\}"),
        ({"tracking": "mlflow"}, r"tracking.*mapping"),
        ({"name": "my/exp"}, "name.*letters, digits"),
        ({"name": "'my exp'"}, "name.*letters, digits"),
        ({"name": "5"}, "name.*text"),
        ({"name": "''"}, "name.*(letters|empty)"),
        ({"reference": "[equal]"}, "reference.*text"),
        ({"baseline": "mmoe"}, "baseline.*mmoe"),
        ({"delta": "accuracy"}, "delta.*list, such as"),
        ({"delta": "[accurracy]"}, "did you mean accuracy"),
        ({"plugins": "mine.py"}, r"plugins.*\[my_method.py\]|plugins.*list"),
        ({"plugins": "[mine]"}, "plugins|mine"),
        ({"description": "[a]"}, "description.*text"),
        ({"defaults": "[base]"}, "unknown key defaults"),
        ({"evaluation": "accuracy"}, r"datasets\[\].evaluation"),
    ):  # fmt: skip
        yield _experiment(str(lines), says, _file(lines))
    anchor = "x-short: &short {epochs: 1}\n"
    yield _experiment(anchor, "2 new", anchor + _file({"training": "*short"}), accepted=True)
    two = "{budget: 4, space: {training.lr: [1e-4, 1e-2]}}"
    yield _experiment(two, "2 values.*low.*high", _file({"search": two}), accepted=True)
    for setting, says in (
        ("seeds=0-4", r"seeds.*\[0, 1, 2, 3, 4\]"),
        ("methods=stl,equal", r"a list, such as \[stl"),
        ("training.lr=1e-3,1e-2", "training.lr.*number"),
        ("training=epochs:3", "training.*mapping"),
        ("methods.0=mlp", "mlp.*(it )?is an encoder"),
        ("lr=0.1", "training.lr"),
        ("training.epochs", "KEY=VALUE"),
        ("training.epochs: 3", "KEY=VALUE"),
    ):
        yield _experiment(f"--set {setting}", says, _file({}), setting)


FUNCTION = "from mtlscale.balancing import balancer\n\n{above}\n{decorator}\ndef mine(losses):\n    {body}\n"


def _function(says: str, decorator: str, body: str, above: str = "", *, accepted: bool = False) -> Mistake:
    content = FUNCTION.format(decorator=decorator, body=body, above=above)
    files = {"x.yaml": _file({"plugins": "[mine.py]", "methods": "[mine]"}), "mine.py": content}
    arguments = ("run", "x.yaml", "--dry-run", "--home", "home")
    return Mistake("plugins", f"function: {decorator} {body}", arguments, says, files, accepted)


def functions() -> Iterator[Mistake]:
    """Mistakes in balancers that are functions."""
    yield _function("@balancer\\(", "@balancer", "return losses * 0 + 1")
    yield _function("mine", "@balancer()", "return losses * 0 + 1 / len(losses)", accepted=True)
    yield _function("losses, gramian", "@balancer(needs='hessian')", "return losses")
    yield _function("(NoneType|nothing|return)", "@balancer()", "losses * 0 + 1")
    yield _function("(negative|sum)", "@balancer()", "return losses * 0 - 1 / len(losses)", accepted=True)
    yield _function("sum.*1000", "@balancer()", "return losses * 0 + 1000 / len(losses)", accepted=True)
    yield _function("shape", "@balancer()", "return losses[:1]")
    yield _function("Tensor|tensor", "@balancer()", "return losses.tolist()")
    yield _function("(unexpected|name|heads)", "@balancer(head='mean')", "return losses")
    yield _function("mine.py:6.*ZeroDivisionError", "@balancer()", "return losses / 0 if 1 // 0 else losses")
    yield _function("(state|argument)", "@balancer()", "return losses, {}")
    yield _function("helper", "@balancer()", "return losses", "from helper_that_is_nowhere import f")
    counting = "CALLS.append(1); return losses * 0 + len(CALLS)"
    yield _function("(module|state|global)", "@balancer()", counting, "CALLS = []", accepted=True)
    for content, says in (
        ("from mtlscale.balancing import Balancer\nclass Mine(Balancer):\n    '''M.'''\n", "mine.py.*(name|__call__)"),
        ("from mtlscale.balancing import Balancer\nclass Mine:\n    name = 'mine'\n", "defines no balancer|Balancer"),
        ("def mine(losses):\n    return losses\n", "defines no balancer|@balancer"),
        ("import torch\nprint(torch.nope)\n", "mine.py:2.*nope"),
        ("x = = 1\n", "mine.py:1|SyntaxError"),
        ("\tx = 1\n", "mine.py:1|Indentation"),
    ):
        files = {"x.yaml": _file({"plugins": "[mine.py]", "methods": "[mine]"}), "mine.py": content}
        yield Mistake("plugins", content, ("run", "x.yaml", "--dry-run", "--home", "home"), says, files)


LOOP = """
import torch
from mtlscale import TaskBalancer
torch.manual_seed(0)
shared, heads = torch.nn.Linear(3, 4), torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(2))
x, y = torch.randn(8, 3), torch.randn(2, 8, 1)
features = shared(x)
losses = [((head(features) - goal) ** 2).mean() for head, goal in zip(heads, y)]
def balancer(**given):
    return TaskBalancer('mgda', shared=shared, heads=list(heads), **given)
"""


def _python(
    kind: str, says: str, code: str, before: str = "", files: Files | None = None, *, accepted: bool = False
) -> Mistake:
    return Mistake(kind, code, (), says, files or {}, accepted, code=before + code)


def loops() -> Iterator[Mistake]:
    """Mistakes in training loops of one's own."""
    for says, code in (
        ("mmoe.*(it )?is an architecture", "TaskBalancer('mmoe', shared=shared, heads=list(heads))"),
        ("mlp.*(it )?is an encoder", "TaskBalancer('mlp', shared=shared, heads=list(heads))"),
        ("digits.*(it )?is a data set", "TaskBalancer('digits', shared=shared, heads=list(heads))"),
        ("did you mean mgda", "TaskBalancer('mgdaa', shared=shared, heads=list(heads))"),
        ("(order|one order)", "TaskBalancer('mgda', shared=shared, heads=list(heads)[::-1]).backward(losses)"),
        ("list of losses", "balancer().backward(torch.stack(losses))"),
        ("list of losses|losses", "balancer().backward(sum(losses))"),
        ("2 (heads|tasks|losses)", "balancer().backward(losses[:1])"),
        ("(float|tensor)", "balancer().backward([1.0, 2.0])"),
        ("(scalar|shape|mean)", "balancer().backward([l.expand(3) for l in losses])"),
        ("(gradient|detach|graph)", "balancer().backward([l.detach() for l in losses])"),
        ("heads", "TaskBalancer('mgda', shared=shared, heads=3)"),
        ("shared", "TaskBalancer('mgda', shared='shared', heads=list(heads))"),
        ("shared|both|head", "TaskBalancer('mgda', shared=[shared, *heads], heads=list(heads))"),
        ("normalize", "balancer(normalise='l2')"),
        ("l3", "balancer(normalize='l3')"),
        ("reduction", "TaskBalancer('equal', shared=shared, heads=list(heads), reduction='mena')"),
        ("nan", "balancer().backward([losses[0] * float('nan'), losses[1]])"),
        ("scale", "s = torch.amp.GradScaler('cpu'); balancer(scaler=s).backward([s.scale(l) for l in losses])"),
    ):  # fmt: skip
        yield _python("own loops", says, code, LOOP)


FRAME = """
import numpy as np, pandas as pd, mtlscale
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(80, 3)), columns=['a', 'b', 'c'])
Y = pd.DataFrame({'p': X.a + X.b, 'q': X.a - X.c})
"""


def in_python() -> Iterator[Mistake]:
    """Mistakes in scripts and notebooks."""
    for says, code in (
        ("did you mean quickstart", "mtlscale.run('quikstart')"),
        ("x.yaml does not exist", "mtlscale.run('x.yaml')"),
        ("(experiment|file|name).*dict", "mtlscale.run({'methods': ['stl']})"),
        ("(experiment|file|name).*None", "mtlscale.run(None)"),
        ("(experiment|file|name).*list", "mtlscale.run(['quickstart'])"),
        ("did you mean quickstart", "mtlscale.load_experiment('quikstart')"),
        ("name.*letters, digits", "mtlscale.compare(X, Y, name='my/exp', home='home')"),
        ("column.*(text|number)|0.*(text|number)", "mtlscale.compare(X, [[1.0, 'a'], [2, 'b']] * 40, home='home')"),
        ("(80|79).*rows", "mtlscale.compare(X, Y[:-1], home='home')"),
        ("did you mean mgda", "mtlscale.compare(X, Y, ['mgdaa'], home='home')"),
        ("mlp.*(it )?is an encoder", "mtlscale.compare(X, Y, ['mlp'], home='home')"),
        ("did you mean p|no column", "mtlscale.compare(X, Y, targets={'P': 'regression'}, home='home')"),
        ("seeds.*list", "mtlscale.compare(X, Y, seeds=3, home='home')"),
        ("(epoch|training.epochs)", "mtlscale.compare(X, Y, epochs=3, home='home')"),
        ("(empty|no row|rows)", "mtlscale.compare(X[:0], Y[:0], home='home')"),
        ("Y is a text.*data frame", "mtlscale.compare(X, 'p', home='home')"),
        ("regression.*class|class.*regression", "mtlscale.compare(X, Y, targets={'p': 'number'}, home='home')"),
        ("(text|str|frame|array)", "mtlscale.compare('t.csv', Y, home='home')"),
        ("nowhere", "mtlscale.load_model('nowhere')"),
        ("nowhere|does not exist", "mtlscale.load_records('nowhere')"),
        ("(folder|export)", "mtlscale.load_model('.')"),
    ):
        yield _python("Python", says, code, FRAME)


@functools.cache
def exported_model() -> str:
    """Export a model of a table with two numbers and a category, for a number and a class; return its folder."""
    from mtlscale.config import ResourceSpec, load_experiment
    from mtlscale.data import load_prepared
    from mtlscale.execution import Job, Options, execute
    from mtlscale.execution.preparing.prepare import prepare
    from mtlscale.inference import export
    from mtlscale.records import Home

    folder = Path(tempfile.mkdtemp(prefix="mistake-model-"))
    rows = [f"{514 + row * 37 % 294},{row * 7 % 13 / 3:.3f},{'rgb'[row % 3]},{row * 5 % 11 / 2},{'uv'[row % 2]}"
            for row in range(90)]  # fmt: skip
    (folder / "t.csv").write_text("\n".join(["x1,x2,colour,size,kind", *rows]) + "\n")
    options = "{targets: {size: regression, kind: class}}"
    (folder / "t.yaml").write_text(
        _file(
            {
                "datasets": f"[{{name: table, source: t.csv, options: {options}}}]",
                "methods": "[equal]",
                "model": "{encoder: {name: mlp, hidden: [8]}}",
            }
        )
    )
    experiment = load_experiment(folder / "t.yaml")
    dataset, home = experiment.datasets[0], Home(folder / "home")
    data = load_prepared(prepare(dataset.name, dataset.options, folder / "t.csv", home.root))
    run = next(experiment.runs({dataset.label: data.manifest.fingerprint}))
    list(execute(Job(run, data.folder, home.run(run.run_id)), Options(ResourceSpec(), models=True, phases=home.phases)))
    export(home, run.run_id, folder / "model")
    return str(folder / "model")


def predictions() -> Iterator[Mistake]:
    """Mistakes in what a trained model is to predict."""
    model, header = MODEL, "x1,x2,colour\n"
    for what, says, content, accepted in (
        ("nothing wrong", "size", f"{header}600,1.5,r\n700,2.5,g\n", True),
        ("an empty cell", "x2.*(fill|mean|empty)", f"{header}600,,r\n", True),
        ("values a thousand times too large", "600000 in x1, training 5", f"{header}600000,1.5,r\n", True),
        ("a category that training lacks", "training.*colour", f"{header}600,1.5,violet\n", True),
        ("a column that is missing", "x2|no column", "x1,colour\n600,r\n", False),
        ("a column of another case", "x1|X1", "X1,x2,colour\n600,1.5,r\n", False),
        ("a word for a number", "x1.*(many|number)", f"{header}many,1.5,r\n", False),
        ("no rows", "(no row|empty|rows)", header, False),
        ("no header", "x1|header|column", "600,1.5,r\n700,2.5,g\n", False),
        ("semicolons", "size|;", "x1;x2;colour\n600;1.5;r\n", True),
        ("infinity", "(inf|x1)", f"{header}inf,1.5,r\n", False),
    ):
        yield Mistake("predictions", what, ("predict", model, "p.csv"), says, {"p.csv": content}, accepted)
    yield Mistake("predictions", "no file", ("predict", model, "nowhere.csv"), "nowhere.csv")
    yield Mistake("predictions", "another kind of file", ("predict", model, "p.txt"), "p.txt|csv", {"p.txt": "hello"})


def other_commands() -> Iterator[Mistake]:
    """Names of another kind, files of another kind and other words on the command line."""
    files: Files = {"x.yaml": _file({}), "a.csv": _csv(), "folder/x.yaml": _file({}), "mine.py": "x = 1\n"}
    for line, says in (
        ("run folder", "folder.*is a folder"),
        ("run .", "is a folder"),
        ("run table", "table.*is a data set"),
        ("run mgda", "mgda.*is a balancer"),
        ("run a.csv", "mtlscale inspect a.csv"),
        ("run mine.py", "plugins"),
        ("run digits", "digits.*is a data set"),
        ("run mlp", "mlp.*is an encoder"),
        ("diagnose a.csv", "mtlscale inspect a.csv"),
        ("diagnose mgda", "mgda.*is a balancer"),
        ("diagnose folder", "folder.*is a folder|data set"),
        ("prepare table --source a.csv --home home --option target=none", "mtlscale inspect a.csv --write|no column"),
        ("prepare a.csv", "mtlscale inspect a.csv"),
        ("prepare mgda", "mgda.*is a balancer"),
        ("prepare folder", "folder.*is a folder"),
        ("prepare table", "mtlscale inspect|--source"),
        ("sweep a.csv", "mtlscale inspect a.csv"),
        ("sweep digits", "digits.*is a data set"),
        ("leaderboard a.csv", "a.csv"),
        ("leaderboard digits --home home", "digits.*is a data set|--dataset"),
        ("report folder --home home", "folder.*is a folder"),
        ("report mgda --home home", "mgda.*is a balancer"),
        ("list mgda", "mgda|mtlscale list balancers"),
        ("list method", "did you mean methods"),
        ("list balancers mmoe", "mmoe.*is an architecture"),
        ("list encoders mgda", "mgda.*is a balancer"),
        ("list datasets mlp", "mlp.*is an encoder"),
        ("show digits --home home", "no runs|digits"),
        ("diagnose digits --encoder mgda", "mgda.*is a balancer"),
        ("diagnose digits --epochs many", "--epochs"),
        ("run x.yaml --set seeds=0-4 --dry-run --home home", r"\[0, 1, 2, 3, 4\]"),
        ("run x.yaml --seed 0", "--set seeds"),
        ("run x.yaml --method mgda", "--only|--set methods"),
        ("run x.yaml --dataset digts --dry-run --home home", "did you mean digits"),
        ("run x.yaml --output folder", "--output.*--help"),
        ("run x.yaml --workers 4", "--set resources.workers=4"),
        ("run x.yaml --gpu", "--set resources.gpus_per_worker=1|gpus_per_worker"),
        ("run x.yaml -h", "no such option|--help"),
        ("compare x.yaml", "leaderboard|no such command"),
        ("train x.yaml", "train.*mtlscale --help"),
        ("help", "--help"),
        ("inspect", "missing argument"),
        ("inspect nowhere.csv", "nowhere.csv.*does not exist"),
        ("predict a.csv x", "a.csv"),
        ("export x.yaml model --home home", "no runs|run"),
        ("status x.yaml", "x.yaml|job"),
        ("contribute x.yaml out --by me --home home", "no runs of x"),
        ("validate-results folder", "experiment.yaml, records.jsonl"),
    ):
        yield Mistake("commands", line, tuple(line.split()), says, files)
    tables: Files = {"a.csv": _csv(lambda columns: columns.pop("target"))}
    arguments = ("prepare", "table", "--source", "a.csv", "--home", "home")
    yield Mistake("commands", "prepare table of a plain table", arguments, "mtlscale inspect a.csv --write", tables)


def typed() -> Iterator[Mistake]:
    """What a third set of strangers typed: settings, rows, files and options, each a little off."""
    predicted: Files = {"p.csv": "x1,x2,colour\n600,1.5,r\n", "p.json": "[]", "blank.csv": " x1,x2,colour\n6,1.5,r\n"}
    files: Files = {"x.yaml": _file({}), "t.csv": _csv(), **predicted}
    for line, says in (
        ("run x.yaml --only stl,equal --dry-run --home home", "--only stl --only equal"),
        ("run x.yaml --only STL --dry-run --home home", "did you mean stl"),
        ("run x.yaml --set methods[0]=mgda --dry-run --home home", r"methods\.0=mgda"),
        ("run x.yaml --set methods+=mgda --dry-run --home home", "did you mean methods"),
        ("run x.yaml --set training.epochs= --dry-run --home home", "training.epochs.*integer, not nothing"),
        ("run x.yaml --set training.lr=0,001 --dry-run --home home", "training.lr.*number.*0,001"),
        ("run x.yaml --set seeds=[0,1 --dry-run --home home", "seeds=.*YAML.*']'"),
        ("run X.YAML --home home", "did you mean x.yaml"),
        ("run x.yml --home home", "did you mean x.yaml"),
        ("run x --home home", "did you mean x.yaml"),
        ("run x.yaml --plugin mine.py", r"plugins=\[mine.py\]"),
        ("list keys training.epoch", "did you mean epochs"),
        ("leaderboard x.yaml --home home --output t.docx", "docx.*--format"),
        ("leaderboard x.yaml --home home --format excel", "choose terminal"),
        ("report x.yaml --home home --output r.html", "mtlscale leaderboard.* have it"),
        ("diagnose x.yaml --dataset digits", "mtlscale run.* have it"),
        ("submit x.yaml --fast", "mtlscale run` has it"),
        ("inspect t.csv --target target", "did you mean --targets"),
        ("inspect t.csv --targets target=class", "colon: target:class"),
        ("inspect t.csv --targets target:classification", "choose auto, class"),
        ("prepare digits --option negatives=many --home home", "negatives = 'many' should be a number"),
        ("prepare digits --option negatives=-1 --home home", "negatives = -1 is outside"),
        ("work x.yaml --task first --home home", "--task.*whole number, not 'first'"),
        ("validate-results nowhere", "experiment.yaml, records.jsonl"),
        (f"predict {MODEL} p.csv --output out.xlsx", "out.xlsx.*csv"),
        (f"predict {MODEL} p.csv --task sizee", "did you mean size"),
        (f"predict {MODEL} p.csv --device gpu", "device gpu.*choose cpu, or cuda"),
        (f"predict {MODEL} p.csv --batch-size 0", "--batch-size.*1, not '0'"),
        (f"predict {MODEL} p.json", "p.json is none of .csv"),
        (f"predict {MODEL} blank.csv", "only ' x1' with blanks"),
        (f"predict p.csv {MODEL}", "p.csv is no exported model"),
    ):
        yield Mistake("commands", line, tuple(line.split()), says, files)

    for lines, says in (
        ({"methods": "[{name: static, weights: [1, 2]}]"}, "2 entries.*10 tasks"),
        ({"methods": "[{name: static, weights: {digit0: 2}}]"}, "weights.*list"),
        ({"methods": "[{name: mgda, training: {epoch: 3}}]"}, "did you mean epochs"),
        ({"methods": "[{name: mgda, lr: 0.1}]"}, r"training: \{lr: 0.1\}"),
        ({"methods": "[equal, {label: equal, name: mgda}]"}, "'equal' appears twice"),
        ({"methods": "[[stl, equal]]"}, "methods.0: should be a name"),
        ({"methods": "[null]"}, "methods.0: should be a name.*nothing"),
        ({"methods": "[1]"}, "methods.0: should be a name.*1"),
        ({"datasets": "[{name: digits, train: 10}]"}, "train.*less than or equal to 1"),
        ({"datasets": "[{name: digits, train: 10%}]"}, "train.*number.*10%"),
        ({"datasets": "[digits, digits]"}, "'digits' appears twice"),
        ({"datasets": "[{source: t.csv}]"}, "datasets.0.name: is missing"),
        ({"datasets": "[{name: table, path: t.csv}]"}, "called source"),
        ({"datasets": "[{name: table, source: no.csv, options: {targets: {a: class}}}]"}, "no.csv does not exist"),
        ({"datasets": "[{name: table, options: {targets: [target]}}]"}, r"mapping, such as \{KEY"),
        ({"training": "{epochs: 1, patience: true}"}, "patience.*number, not true"),
        ({"training": "{epochs: 1, scheduler: cosine}"}, "called schedule"),
        ({"training": "{steps: 100}"}, "called steps_per_epoch"),
        ({"training": "{epochs: 1, early_stopping: 5}"}, "called patience"),
        ({"training": "{epochs: 1, dropout: 0.1}"}, "model.dropout"),
        ({"model": "{encoder: {name: mlp, hidden: '64, 64'}}"}, "hidden.*list"),
        ({"model": "{encoder: resnet18}"}, "reads images, digits has vectors"),
        ({"seeds": "[0, 1.5]"}, "seeds.1.*integer, not 1.5"),
        ({"seeds": "[]"}, "seeds: is empty"),
        ({"search": "{trials: 10}"}, "called budget"),
        ({"search": "{space: {training.lr: {low: 1, high: 0.1}}}"}, "low must lie below high"),
        ({"search": "{space: {training.lr: {low: 1, high: 2, log: true}}}"}, "called scale"),
        ({"search": "{space: {training.lr: []}}"}, "list of choices is empty"),
        ({"plugins": "[missing.py]"}, "missing.py does not exist"),
        ({"plugins": "[mine.ipynb]"}, "mine.ipynb"),
    ):  # fmt: skip
        yield _experiment(str(lines), says, _file(lines))
    for content, says in (
        (_file({}).encode("utf-16"), "save the file as UTF-8"),
        ("- datasets: [digits]\n", "is a mapping with `name`"),
        (_file({}) + "---\nseeds: [1]\n", "another document"),
        (_file({}).replace("seeds:", "seeds"), "x.yaml:5: not valid YAML"),
        ("", "is a mapping with `name`"),
    ):
        yield _experiment(repr(content), says, content)

    same = _column("again", lambda row: row // 2 % 2)
    yield _inspected("one target twice", "again.*same as 'target'.*one task twice", same,
                     "--targets", "target,again", accepted=True)  # fmt: skip
    summed = _csv() + "Total,300.5,280.1,1\n"
    titled, blank = "Sales report\n" + _csv(), _csv().replace("target", " target", 1)
    for what, says, content, accepted in (
        ("a row of sums", "the last row has 'Total'", summed, True),
        ("a title above the header", "skip_lines: 1", titled, False),
        ("a comment above the header", "skip_lines: 1", "# made by me\n" + _csv(), False),
        ("blanks around a name", "' target' \\(with blanks", blank, False),
        ("UTF-16", "read as UTF-16", _csv().encode("utf-16"), True),
        ("percentages in an input", "x1.*percent", _csv(_column("x1", lambda r: f"{r}%")), True),
    ):
        arguments = ("inspect", "t.csv", "--targets", "target")
        yield Mistake("tables", f"inspect: {what}", arguments, says, {"t.csv": content}, accepted)

    yield _balancer("returns weights a ndarray", "return losses.detach().numpy(), state")
    yield _balancer(r"returns weights of shape \[2, 1\]", "return losses[:, None], state")
    yield _balancer("sum to 0", "return losses * 0, state", accepted=True)

    for says, code in (
        ("two columns named 'a'", "X.columns = ['a', 'a', 'b']; mtlscale.compare(X, Y, home='home')"),
        ("row 1 is 0 in X and 79 in Y", "mtlscale.compare(X, Y[::-1], home='home')"),
        ("'p' holds dates", "Y['p'] = pd.date_range('2020', '2021', 80); mtlscale.compare(X, Y, home='home')"),
        ("'a' holds list", "X['a'] = [[1, 2]] * 80; mtlscale.compare(X, Y, home='home')"),
        ("'p' has no value", "Y['p'] = np.nan; mtlscale.compare(X, Y, home='home')"),
        ("'a' of X has values of several kinds", "X['a'] = [1, 'x'] * 40; mtlscale.compare(X, Y, home='home')"),
        (r"shape \[80, 3, 2\]", "mtlscale.compare(np.zeros((80, 3, 2)), Y, home='home')"),
        ("'p' is in X and in Y", "mtlscale.compare(X.assign(p=Y.p), Y, home='home')"),
        ("training should be a mapping", "mtlscale.compare(X, Y, training='fast', home='home')"),
        ("targets should be a mapping", "mtlscale.compare(X, Y, targets=['p'], home='home')"),
        ("options should be a mapping", "mtlscale.compare(X, Y, options=['group'], home='home')"),
        ("name: should be a text", "mtlscale.compare(X, Y, name=3, home='home')"),
    ):
        yield _python("Python", says, code, FRAME)

    for says, code in (
        ("the balancer was not given: make", "s = torch.amp.GradScaler('cpu'); balancer().backward(s.scale(losses))"),
        ("tasks are 0, 1", "balancer().backward({'a': losses[0], 'b': losses[1]})"),
        ("differentiated before", "b = balancer(); b.backward(losses); b.backward(losses)"),
        ("counts have 1 entries", "balancer().backward(losses, counts=[1])"),
        ("hand over the output", "balancer().backward(losses, features=torch.randn(8, 4))"),
        ("all 2 of them are frozen", "shared.requires_grad_(False); balancer()"),
        ("shared is a Adam", "TaskBalancer('mgda', shared=torch.optim.Adam(shared.parameters()), heads=list(heads))"),
        ("there are no tasks", "TaskBalancer('mgda', shared=shared)"),
        ("no state of a TaskBalancer", "balancer().load_state_dict({})"),
        ("scaler is a bool", "balancer(scaler=True)"),
        ("choose off, bf16", "balancer(amp='float16')"),
        ("gramian_every is 0", "balancer(gramian_every=0)"),
    ):
        yield _python("own loops", says, code, LOOP)


def mistakes() -> list[Mistake]:
    """Return all mistakes, kind after kind."""
    parts = (tables, inspected, experiment_files, shorthands, texts, plugins, functions, loops, in_python, predictions)
    return [mistake for part in (*parts, commands, other_commands, typed) for mistake in part()]


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


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))


def run(options: argparse.Namespace) -> bool:
    os.environ.setdefault("COLUMNS", "200")
    kinds = {kind.split()[0] for kind in options.kinds or KINDS}
    answers = [judged(mistake) for mistake in mistakes() if mistake.kind.split()[0] in kinds]
    print(shown(answers))
    return not any(answer.verdict in ("traceback", "silently wrong") for answer in answers)
