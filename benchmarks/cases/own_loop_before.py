"""What a step of an own loop costs beside that of an earlier revision.

    python benchmarks/run.py own_loop_before 1847d535 --problem one10 --methods equal,mgda,pcgrad

The problems are those of `own_loop`. Each revision has a process of its own, of one thread; they take turns of ten
steps, and a figure is the median over turns of the ratios of their CPU times.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import ROOT, Sheet, checkout, target

MOST = 1.03  # times the earlier revision's
STEPS = 10  # of a turn
SERVE = "import sys; sys.path[:0] = sys.argv[1:4]; from cases import own_loop_before as case; case.serve(*sys.argv[4:])"


class Side:
    """The steps of one revision, in a process of their own."""

    def __init__(self, root: Path, problem: str, method: str) -> None:
        places = [str(root), str(ROOT / "benchmarks"), str(root / "benchmarks")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *places, problem, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        )
        self.origin = self._line()

    def __call__(self) -> float:
        """Seconds of the CPU for a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            sys.exit("a revision's process has ended; its error stands above")
        return line

    def end(self) -> None:
        self._process.communicate()


def serve(problem: str, method: str) -> None:
    """In a revision's process: take the steps that are asked for, and tell their seconds."""
    import torch
    from cases.own_loop import ours

    import mtlscale

    torch.set_num_threads(1)
    step = ours(problem, method)
    print(Path(mtlscale.__file__).parents[1], flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        for _ in range(STEPS):
            step()
        print(time.process_time() - started, flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--problem", default="one10")
    parser.add_argument("--methods", default="equal,mgda,pcgrad,imtl_g,aligned_mtl,graddrop", help="comma-separated")
    parser.add_argument("--turns", type=int, default=60)


QUICK = {"methods": "equal", "turns": 4}


def run(options: argparse.Namespace) -> bool:
    sheet = Sheet(f"{options.problem}: now / {options.revision}", "method", "ratio", "quartiles")
    with checkout(options.revision) as earlier:
        for method in options.methods.split(","):
            before, now = Side(earlier, options.problem, method), Side(ROOT, options.problem, method)
            assert (before.origin, now.origin) == (str(earlier), str(ROOT)), (before.origin, now.origin)
            ratios = []
            for turn in range(-1, options.turns):
                order = (before, now) if turn % 2 else (now, before)
                seconds = {side: side() for side in order}
                if turn >= 0:
                    ratios.append(seconds[now] / seconds[before])
            for side in (before, now):
                side.end()
            low, middle, high = statistics.quantiles(ratios, n=4)
            sheet.row(method, f"{middle:.3f}", f"{low:.3f} to {high:.3f}")
    sheet.show()
    largest = max(float(row[1]) for row in sheet.rows)
    return target(f"at most {MOST:g} times, here {largest:.3f}", largest <= MOST)
