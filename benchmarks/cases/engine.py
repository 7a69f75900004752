"""What a change of the engine costs: this checkout beside an earlier revision of itself, in one run.

    python benchmarks/engine.py --against 5b9bccc                         # steps of all problems
    python benchmarks/engine.py --against 5b9bccc --problem one10,own4 --balancers equal,mgda
    python benchmarks/engine.py --against 5b9bccc --jobs quickstart,sweep   # whole commands, on an idle machine

The earlier revision is checked out into a temporary folder. Steps: one process of each checkout builds the problem of
`benchmarks/balancers.py`; they take turns, step by step in small groups, and the figure is the median of the ratios of
their CPU times (one thread each). Jobs: whole commands in turn, each with a fresh home; the figure is the ratio of the
median wall clocks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.03
PROBLEMS = "own4,own14,one10,resnet3"
BALANCERS = "equal,uncertainty,mgda,pcgrad,cagrad,getmtl,graddrop"
GROUP = {"one10": 40, "one10wide": 5}  # steps between two turns
# The same job whatever the quickstart of a checkout is.
_SAME = ("datasets=[digits]", "seeds=[0,1,2]", "training.batch_size=32", "training.steps_per_epoch=null")
JOBS = {
    "quickstart": ["-m", "mtlscale.cli", "run", "quickstart", *(text for one in _SAME for text in ("--set", one))],
    "sweep": ["benchmarks/sweep.py", "--problem", "digits", "--trials", "64", "--tune-trials", "4"],
}

# Runs in a process of either checkout: builds the step, then makes as many as a line asks for.
_WORKER = """
import sys, time
sys.path.insert(0, "benchmarks")
import torch
torch.set_num_threads(1)
import balancers
run = balancers.our_step(sys.argv[1], sys.argv[2], "cpu")
print("ready", flush=True)
for line in sys.stdin:
    started = time.process_time()
    for _ in range(int(line)):
        run()
    print(time.process_time() - started, flush=True)
"""


@contextlib.contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The revision in a folder of its own, for the time."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "earlier"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(place), revision], check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(place)], check=True)


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


class Side:
    """One checkout's process for one problem and balancer."""

    def __init__(self, root: Path, problem: str, balancer: str) -> None:
        command = [sys.executable, "-c", _WORKER, problem, balancer]
        self._process = subprocess.Popen(
            command, cwd=root, env=environment(root), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def steps(self, count: int) -> float:
        """CPU seconds of so many steps."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a process of the comparison ended early; its error stands above")
        return line


def steps(earlier: Path, problem: str, balancer: str, turns: int) -> tuple[float, float, float]:
    """(median of the ratios, milliseconds of a step earlier, and now)."""
    sides = [Side(root, problem, balancer) for root in (ROOT, earlier)]
    group = GROUP.get(problem, 1)
    for side in sides:
        side.steps(2 * group)
    times: list[tuple[float, float]] = []
    for turn in range(turns):
        order = (0, 1) if turn % 2 else (1, 0)
        found = {place: sides[place].steps(group) for place in order}
        times.append((found[0], found[1]))
    for side in sides:
        side.close()
    now, before = (statistics.median(column) * 1e3 / group for column in zip(*times, strict=True))
    return statistics.median(a / b for a, b in times), before, now


def job(root: Path, command: list[str]) -> float:
    """Wall clock of a command with a fresh home."""
    with tempfile.TemporaryDirectory() as home:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command],
            cwd=root,
            env={**environment(root), "MTLSCALE_HOME": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed in {root.name}: {done.stderr[-2000:]}")
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, help="the earlier revision")
    parser.add_argument("--problem", default=PROBLEMS, help="comma-separated")
    parser.add_argument("--balancers", default=BALANCERS, help="comma-separated")
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--jobs", default="", help=f"of {', '.join(JOBS)}; instead of steps")
    parser.add_argument("--repeats", type=int, default=3, help="of a job, in each checkout")
    options = parser.parse_args()
    console = Console(width=100)
    with checkout(options.against) as earlier:
        if options.jobs:
            table = Table("job", f"{options.against} s", "now s", "ratio")
            for name in options.jobs.split(","):
                pairs = [(job(earlier, JOBS[name]), job(ROOT, JOBS[name])) for _ in range(options.repeats)]
                before, now = (statistics.median(column) for column in zip(*pairs, strict=True))
                table.add_row(name, f"{before:.1f}", f"{now:.1f}", f"{now / before:.3f}")
            console.print(table)
            return
        table, worst = Table("problem", "balancer", f"{options.against} ms", "now ms", "ratio"), 0.0
        for problem in options.problem.split(","):
            for balancer in options.balancers.split(","):
                ratio, before, now = steps(earlier, problem, balancer, options.turns)
                worst = max(worst, ratio)
                table.add_row(problem, balancer, f"{before:.2f}", f"{now:.2f}", f"{ratio:.3f}")
        console.print(table)
        console.print(f"largest ratio {worst:.3f}, aim {LIMIT}")


if __name__ == "__main__":
    main()
