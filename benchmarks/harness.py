"""What cases share: processes of their own, turns and their ratios, peak memory, tables, records."""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import pickle
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).resolve().parent / "cases"
LIBRARIES = ("mtlscale", "torch", "numpy", "pyarrow", "ray", "torchjd", "mlflow")
FIGURES: list[dict[str, Any]] = []  # what the case has found so far

Step = Callable[[], object]
Times = dict[str, list[float]]


# -- cases -------------------------------------------------------------------------------------------------------------


def cases() -> dict[str, str]:
    """Return every case with the question that it answers, the first line of its text."""
    paths = sorted(path for path in CASES.glob("*.py") if path.stem != "__init__")
    texts = {path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in paths}
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in texts.items()}


def run_case(name: str, words: Sequence[str]) -> int:
    """Run a case; return the exit status, 1 where it has missed a target."""
    module = importlib.import_module(f"cases.{name}")
    parser = argparse.ArgumentParser(
        prog=f"benchmarks/run.py {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.arguments(parser)
    parser.add_argument("--record", type=Path, help="append what is found to this file, as a line of JSON")
    if quick := getattr(module, "QUICK", None):
        parser.add_argument("--quick", action="store_true", help="the smallest form: does the case work?")
        if "--quick" in words:
            parser.set_defaults(**quick)
    options = parser.parse_args(words)

    started = time.perf_counter()
    good = module.run(options)
    if options.record is not None:
        record(options.record, name, vars(options), time.perf_counter() - started, good is not False)
    return int(good is False)


def record(path: Path, case: str, arguments: Mapping[str, Any], seconds: float, good: bool) -> None:
    """Append a line: the case, its arguments and figures, and where they come from."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    entry = {
        "case": case,
        "arguments": {key: value for key, value in arguments.items() if key != "record"},
        "figures": FIGURES,
        "good": good,
        "seconds": seconds,
        "processor": processor(),
        "versions": {"python": platform.python_version(), **versions()},
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, default=str) + "\n")


def processor() -> str:
    """Return the model, the number of cores and the load of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


# -- processes of their own --------------------------------------------------------------------------------------------


class Apart:
    """A function of a case in a fresh process, with its own imports and its own memory."""

    def __init__(
        self, function: Callable[..., Any], *arguments: Any, prefix: Sequence[str] = (), stderr: int | None = None,
        **environment: str,
    ) -> None:  # fmt: skip
        self._folder = tempfile.TemporaryDirectory(prefix="apart-")
        request, self._answer = (Path(self._folder.name) / name for name in ("request", "answer"))
        request.write_bytes(pickle.dumps((function.__module__, function.__name__, arguments)))
        command = [*prefix, sys.executable, str(CASES.parent / "run.py"), "--call", str(request), str(self._answer)]
        self._process = subprocess.Popen(command, stderr=stderr, text=True, env={**os.environ, **environment})
        self.errors, self.status = "", 0

    def wait(self) -> bool:
        """Wait for its end; return whether it has an answer."""
        if self._process.returncode is None:
            self.errors = self._process.communicate()[1] or ""
        self.status = self._process.returncode
        return self.status == 0

    def result(self) -> Any:
        """What the function returned; ends this program where it failed."""
        if not self.wait():
            sys.exit(f"a part in a process of its own ended with status {self.status}; its error stands above")
        return pickle.loads(self._answer.read_bytes())  # noqa: S301  # of this program


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a fresh process."""
    return Apart(function, *arguments).result()


def answer(request: str, place: str) -> None:
    """In the process of its own: call the function and leave what it returns."""
    module, name, arguments = pickle.loads(Path(request).read_bytes())  # noqa: S301  # of this program
    result = getattr(importlib.import_module(module), name)(*arguments)
    Path(place).write_bytes(pickle.dumps(result))
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        os._exit(0)  # gloo's threads, torn down while the other still talks, abort now and then


@contextmanager
def local_ray(cpus: int) -> Iterator[None]:
    """A Ray of this process alone, whose workers are no less urgent than it."""
    from mtlscale.execution.cluster import local_ray as starting
    from mtlscale.execution.cluster.cluster import session

    os.environ.setdefault("RAY_worker_niceness", "0")
    starting.set_timeouts()
    import ray

    starting.start(lambda note: print(note, file=sys.stderr), cpus)
    try:
        with session():
            yield
    finally:
        ray.shutdown()


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The revision in a folder of its own, for the time."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "earlier"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(place), revision], check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(place)], check=True)


# -- time and memory ---------------------------------------------------------------------------------------------------


def spent(step: Step, device: str = "cpu") -> float:
    """Seconds of a step: the time of the process's threads on the CPU, the clock on a GPU."""
    if device == "cpu":
        started = time.process_time()
        step()
        return time.process_time() - started
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Seconds of the clock, and what the function returns."""
    started = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - started, result


def in_turns(
    steps: Mapping[str, Step], turns: int, group: int = 1, warm: int = 1, clock: Callable[[Step], float] = spent
) -> Times:
    """Seconds of every step, which alternate, so that what else the machine does hits all of them."""
    times: Times = {name: [] for name in steps}
    for turn in range(-warm, turns):
        for name in list(steps) if turn % 2 else reversed(list(steps)):
            seconds = sum(clock(steps[name]) for _ in range(group)) / group
            if turn >= 0:
                times[name].append(seconds)
    return times


def ratio(times: Times, name: str, reference: str) -> float:
    """The median over turns of one step's time over another's."""
    return statistics.median(a / b for a, b in zip(times[name], times[reference], strict=True))


def memory_line(field: str) -> float:
    """Bytes of a line of /proc/self/status (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def peak_mib(first: Step, build: Callable[[], Step], steps: int = 3) -> float:
    """Peak memory of this process while it builds a step and does a few, over what it holds after `first`."""
    first()  # libraries that load on first use
    gc.collect()
    before = memory_line("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    step = build()
    for _ in range(steps):
        step()
    return (memory_line("VmHWM") - before) / 2**20


# -- tables ------------------------------------------------------------------------------------------------------------


class Sheet:
    """A table of figures: told line by line as they come, printed whole at the end, and kept for the record."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title, self.columns, self.rows = title, columns, list[tuple[Any, ...]]()

    def row(self, *cells: Any) -> None:
        self.rows.append(cells)
        print(" | ".join(map(shown, cells)), file=sys.stderr, flush=True)

    def show(self) -> None:
        from rich.console import Console
        from rich.table import Table

        table = Table(*self.columns, title=self.title)
        for cells in self.rows:
            table.add_row(*map(shown, cells))
        Console(width=130).print(table)
        FIGURES.append({"table": self.title, "columns": self.columns, "rows": self.rows})


def shown(cell: Any) -> str:
    """A cell in words: nothing for what is not known, two digits behind the point, none of a large number."""
    if cell is None or cell != cell:
        return ""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    return f"{cell:.1e}" if 0 < abs(cell) < 0.005 else f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.2f}"


def say(text: str, **figures: Any) -> None:
    """Print a sentence, and keep its figures for the record."""
    print(text, flush=True)
    FIGURES.append({"text": text, **figures})


def target(text: str, met: bool) -> bool:
    """Say whether a target is met; return it."""
    say(f"{text}: {'met' if met else 'MISSED'}", met=met)
    return met
