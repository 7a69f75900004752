"""What a change costs: steps of this checkout beside those of an earlier revision of itself, in one run.

    python benchmarks/run.py engine --against 5b9bccc
    python benchmarks/run.py engine --against 5b9bccc --problem one10,own4 --balancers equal,mgda

The earlier revision is checked out into a temporary folder. One process of each checkout builds the step of the case
`balancers`; they take turns, some steps at a time, and the figure is the median of the ratios of their CPU times (one
thread each).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from harness import ROOT, Sheet, checkout, in_turns, ratio, target

LIMIT = 1.03
GROUP = {"one10": 40, "one10wide": 5}  # steps between two turns

# In a process of either checkout: build the step, then make as many as a line asks for.
_WORKER = """
import sys, time
sys.path[:0] = [".", "benchmarks", "benchmarks/cases"]
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


class Side:
    """One checkout's process for one problem and balancer."""

    def __init__(self, root: Path, problem: str, balancer: str) -> None:
        self.group = GROUP.get(problem, 1)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, problem, balancer],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def seconds(self) -> float:
        """CPU seconds of a step, by a group of them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self.group}\n")
        self._process.stdin.flush()
        return float(self._answer()) / self.group

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline() or sys.exit("a side ended early; its error stands above")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", default="HEAD", help="the earlier revision")
    parser.add_argument("--problem", default="own4,own14,one10,resnet3", help="comma-separated")
    parser.add_argument("--balancers", default="equal,uncertainty,mgda,pcgrad,cagrad,getmtl,graddrop")
    parser.add_argument("--turns", type=int, default=21)


QUICK = {"problem": "one10", "balancers": "equal", "turns": 3}


def run(options: argparse.Namespace) -> bool:
    sheet = Sheet("milliseconds of a step", "problem", "balancer", options.against, "now", "ratio")
    with checkout(options.against) as earlier:
        for problem in options.problem.split(","):
            for balancer in options.balancers.split(","):
                sides = {name: Side(root, problem, balancer) for name, root in (("now", ROOT), ("then", earlier))}
                steps = {name: side.seconds for name, side in sides.items()}
                times = in_turns(steps, options.turns, warm=2, clock=lambda step: step())  # type: ignore[return-value]
                for side in sides.values():
                    side.close()
                then, now = (1e3 * statistics.median(times[name]) for name in ("then", "now"))
                sheet.row(problem, balancer, then, now, ratio(times, "now", "then"))
    sheet.show()
    worst = max(row[-1] for row in sheet.rows)
    return target(f"largest ratio {worst:.3f}, aim {LIMIT}", worst <= LIMIT)
