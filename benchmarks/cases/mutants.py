"""How much do the tests see? Break the package in many small places and count the breaks that a test notices.

    python benchmarks/run.py mutants map --out build/map                  # the default suite once, under coverage
    python benchmarks/run.py mutants run --map build/map --out build/mutants.json
    python benchmarks/run.py mutants run --map build/other --out other.json --tree ../other --same build/mutants.json

A mutant is one changed operator, constant, condition, removed statement or swapped pair of arguments, drawn with a seed
over all lines that a test executes in its own process. Each is tried in a copy of the tree, on the tests that execute
its line, the quickest first and never more than `--seconds` of them, until one fails. `--same` breaks the places of an
earlier answer in another tree and asks the test that noticed first. Needs pytest-cov.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import say

PACKAGES = ("mtlscale", "pipelines")
LIBRARIES = (
    "torch", "pandas", "pyarrow.parquet", "scipy.stats", "sklearn.linear_model", "pydantic",
    "typer", "rich", "hypothesis", "optuna", "ray", "mlflow", "pytest",
)  # fmt: skip
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


_NO_SUCH_TEST = "pytest ended with 4"  # of a tree that lacks the map's tests


@dataclass(frozen=True)
class Mutant:
    """One change: `before` in this function of this file, the how-manieth such text there, becomes `after`."""

    file: str
    function: str
    kind: str
    before: str
    after: str
    occurrence: int
    line: int = 0


@dataclass
class Verdict:
    """What became of a mutant: caught (by which test), survived, not covered, gone from the tree, or its tests are."""

    mutant: Mutant
    outcome: str
    by: str = ""
    tests: int = 0
    seconds: float = 0.0


# -- the changes ---------------------------------------------------------------------------------------------------


def mutants_of(path: Path, name: str, lines: set[int]) -> Iterator[Mutant]:
    """Every change of a file on the given lines."""
    source = Source(path.read_text(encoding="utf-8"))
    for function in _functions(source.tree):
        text = source.of(function)
        for node in ast.walk(function):
            if getattr(node, "lineno", 0) not in lines or node is function:
                continue
            for kind, after in _changes(node):
                before = source.of(node)
                occurrence = text[: source.start(node) - source.start(function)].count(before)
                yield Mutant(name, function.name, kind, before, after, occurrence, node.lineno)  # type: ignore[attr-defined]


class Source:
    """A file's text and tree, and the text of each node."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self.rows = text.splitlines(keepends=True)
        self.starts = list(itertools.accumulate(map(len, self.rows), initial=0))

    def start(self, node: Any) -> int:
        return self._place(node.lineno, node.col_offset)

    def of(self, node: Any) -> str:
        return self.text[self.start(node) : self._place(node.end_lineno, node.end_col_offset)]

    def _place(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.rows[line - 1].encode()[:column].decode())


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (member for member in members if isinstance(member, ast.FunctionDef))


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.BinOp | ast.BoolOp) and type(changed.op) in SWAPPED:
        changed.op = SWAPPED[type(changed.op)]()  # type: ignore[assignment]
        yield "operator", f"({ast.unparse(changed)})"
    elif isinstance(changed, ast.Compare) and type(changed.ops[0]) in SWAPPED:
        changed.ops[0] = SWAPPED[type(changed.ops[0])]()  # type: ignore[call-overload]
        yield "comparison", f"({ast.unparse(changed)})"
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        yield "constant", str(not changed.value)
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, int | float):
        yield "constant", f"({changed.value} + 1)"
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        yield "condition", f"({ast.unparse(changed.operand)})"
    elif (
        isinstance(changed, ast.Call)
        and len(changed.args) >= 2
        and not any(isinstance(a, ast.Starred) for a in changed.args[:2])
    ):
        changed.args[0], changed.args[1] = changed.args[1], changed.args[0]
        yield "arguments", ast.unparse(changed)
    elif (isinstance(changed, ast.Expr) and isinstance(changed.value, ast.Call)) or isinstance(changed, ast.AugAssign):
        yield "removed", "pass"
    elif isinstance(changed, ast.Return) and changed.value is not None and not isinstance(changed.value, ast.Constant):
        yield "removed", "return None"


def break_it(tree: Path, mutant: Mutant) -> str | None:
    """Write the mutant into the tree; return the file's former text, or None where the place is gone."""
    path = tree / mutant.file
    if not path.is_file():
        return None
    source = path.read_text(encoding="utf-8")
    for function in _functions(ast.parse(source)):
        text = ast.get_source_segment(source, function) or ""
        parts = text.split(mutant.before)
        if function.name == mutant.function and len(parts) > mutant.occurrence + 1:
            cut = mutant.occurrence + 1
            changed = mutant.before.join(parts[:cut]) + mutant.after + mutant.before.join(parts[cut:])
            path.write_text(source.replace(text, changed, 1), encoding="utf-8")
            return source
    return None


# -- the tests -----------------------------------------------------------------------------------------------------


def make_map(out: Path, paths: list[str]) -> None:
    """Run the default suite once under coverage, which notes the tests that execute each line."""
    out.mkdir(parents=True, exist_ok=True)
    settings = out / "coveragerc"
    settings.write_text(f"[run]\nsource = {', '.join(PACKAGES)}\ndata_file = {out / 'coverage'}\n")
    # A number of processes: where `auto` means one, pytest-cov waits for others and notes no test.
    processes = str(len(os.sched_getaffinity(0)) + 1)
    options = ["-n", processes, "--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    subprocess.run([sys.executable, "-m", "pytest", *options, f"--junitxml={out / 'tests.xml'}", *paths], check=False)


def read_map(folder: Path, tree: Path) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """File -> line -> tests that execute it; and the seconds of every test that passed."""
    from coverage import CoverageData

    data = CoverageData(str(folder / "coverage"))
    data.read()
    seconds = _durations(folder / "tests.xml")
    lines: dict[str, dict[int, list[str]]] = {}
    for path in data.measured_files():
        inside = next((path[path.rindex(f"/{package}/") + 1 :] for package in PACKAGES if f"/{package}/" in path), None)
        if inside is not None and inside.endswith(".py") and (tree / inside).is_file():
            contexts = data.contexts_by_lineno(path)
            lines[inside] = {
                line: tests
                for line, found in contexts.items()
                if (tests := [test for context in found if (test := context.partition("|")[0]) in seconds])
            }
    return lines, seconds


def _durations(path: Path) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(path).getroot().iter("testcase"):  # pytest wrote it
        if not any(case.find(problem) is not None for problem in ("failure", "error", "skipped")):
            name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
            seconds[name] += float(case.attrib["time"])
    return dict(seconds)


def chosen(tests: list[str], seconds: dict[str, float], limit: float, most: int) -> list[str]:
    """The quickest test of every file in turn, until so many or so many seconds of them."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in sorted(set(tests), key=lambda test: seconds[test]):
        by_file[test.partition("::")[0]].append(test)
    turns: list[str] = []
    while any(by_file.values()) and len(turns) < most:
        turns += [
            queue.pop(0)
            for queue in sorted(by_file.values(), key=lambda queue: seconds[queue[0]] if queue else 0)
            if queue
        ]
    picked, spent = [], 0.0
    for test in turns[:most]:
        if not picked or spent + seconds[test] <= limit:
            picked.append(test)
            spent += seconds[test]
    return picked


def preload() -> None:
    """Import the libraries once: every process that tries a mutant is forked from this one and has them."""
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)


def fails(tree: Path, tests: list[str], limit: float) -> str:
    """The first of these tests that fails in the tree, or nothing."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_try, args=(tree, tests, theirs))
    process.start()
    theirs.close()
    try:
        if not mine.poll(limit):
            return "time"
        return str(mine.recv())
    except EOFError:
        return "crash"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


class _FirstFailure:
    """A plugin of pytest's that remembers which test failed."""

    name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = "collection"


def _try(tree: Path, tests: list[str], answer: Any) -> None:
    import pytest

    os.setsid()
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONPATH=str(tree), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    first = _FirstFailure()
    status = pytest.main(["-n", "0", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests], plugins=[first])
    answer.send(first.name if first.name else "" if status == 0 else f"pytest ended with {int(status)}")
    os._exit(0)


# -- the study -----------------------------------------------------------------------------------------------------


def study(arguments: argparse.Namespace) -> list[Verdict]:
    root = arguments.tree.resolve()
    lines, seconds = read_map(arguments.map.resolve(), root)
    known: dict[Mutant, str] = {}
    if arguments.same:
        for entry in json.loads(arguments.same.read_text()):
            known[Mutant(**entry["mutant"])] = entry["by"]
    else:
        known = dict.fromkeys(drawn(root, lines, arguments.count, arguments.seed), "")
    verdicts = judged(arguments.out)
    done = {verdict.mutant for verdict in verdicts}
    preload()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            root, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "outputs", "build", "*_cache")
        )
        for number, (mutant, by) in enumerate(known.items(), 1):
            if mutant in done:
                continue
            verdict = judge(tree, mutant, by, lines, seconds, arguments)
            verdicts.append(verdict)
            before, after = (" ".join(text.split())[:60] for text in (mutant.before, mutant.after))
            place = f"{mutant.file}:{mutant.line} {mutant.kind}"
            print(f"{number:4d} {verdict.outcome:10s} {place}: {before} -> {after}  [{verdict.by}]", flush=True)
            arguments.out.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1))
    return verdicts


def judged(out: Path) -> list[Verdict]:
    """What an earlier call that was cut off has found."""
    if not out.is_file():
        return []
    return [Verdict(Mutant(**entry.pop("mutant")), **entry) for entry in json.loads(out.read_text())]


def drawn(root: Path, lines: dict[str, dict[int, list[str]]], count: int, seed: int) -> list[Mutant]:
    """So many mutants: a file by its number of executed lines, then one of its changes."""
    rng = random.Random(seed)
    files = sorted(file for file, found in lines.items() if found)
    weights = [len(lines[file]) for file in files]
    picked: dict[Mutant, None] = {}
    while len(picked) < count:
        [file] = rng.choices(files, weights)
        covered = {line for line, tests in lines[file].items() if tests}
        if changes := sorted(
            mutants_of(root / file, file, covered), key=lambda mutant: (mutant.line, mutant.kind, mutant.before)
        ):
            picked[rng.choice(changes)] = None
    return list(picked)


def judge(tree: Path, mutant: Mutant, by: str, lines: dict[str, dict[int, list[str]]], seconds: dict[str, float],
          arguments: argparse.Namespace) -> Verdict:  # fmt: skip
    began, source = time.monotonic(), break_it(tree, mutant)
    if source is None:
        return Verdict(mutant, "gone")
    try:
        covering = _covering(tree, mutant, source, lines)
        tests = chosen(covering, seconds, arguments.seconds, arguments.most)
        for group in ([by] if by in seconds else [], tests):
            if group and (found := fails(tree, group, 4 * arguments.seconds + 60)):
                if found == _NO_SUCH_TEST:
                    return Verdict(mutant, "unasked", found, len(tests), time.monotonic() - began)
                return Verdict(mutant, "caught", found, len(tests), time.monotonic() - began)
        return Verdict(mutant, "survived" if tests else "uncovered", "", len(tests), time.monotonic() - began)
    finally:
        (tree / mutant.file).write_text(source, encoding="utf-8")


def _covering(tree: Path, mutant: Mutant, source: str, lines: dict[str, dict[int, list[str]]]) -> list[str]:
    """The tests that execute the line, wherever it stands now; those of the function if that moved."""
    found = lines.get(mutant.file, {})
    for function in _functions(ast.parse(source)):
        if function.name != mutant.function:
            continue
        text = ast.get_source_segment(source, function) or ""
        before = mutant.before.join(text.split(mutant.before)[: mutant.occurrence + 1])
        if tests := found.get(function.lineno + before.count("\n")):
            return tests
        return [test for line in range(function.lineno, (function.end_lineno or 0) + 1) for test in found.get(line, [])]
    return []


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map")
    mapping.add_argument("--out", type=Path, required=True)
    mapping.add_argument("paths", nargs="*")
    running = commands.add_parser("run")
    running.add_argument("--map", type=Path, required=True)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--tree", type=Path, default=Path())
    running.add_argument("--same", type=Path)
    running.add_argument("--count", type=int, default=120)
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--seconds", type=float, default=30.0, help="of tests for a mutant")
    running.add_argument("--most", type=int, default=40, help="tests for a mutant")


def run(options: argparse.Namespace) -> None:
    if options.command == "map":
        make_map(options.out.resolve(), options.paths)
        return
    verdicts = study(options)
    counts = Counter(verdict.outcome for verdict in verdicts)
    told = " · ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items()))
    say(f"{told} of {len(verdicts)}", **counts)
