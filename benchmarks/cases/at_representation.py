"""What `at: representation` saves: rules of the Gramian, exact and at the representation, over a step of equal weights.

    python benchmarks/run.py at_representation --libmtl LIBMTL     # see own_loop for LibMTL's files
    python benchmarks/run.py at_representation --tasks 40 --methods mgda,cagrad

So many tasks share one image of 32 x 32 in a convolutional network of four layers; batches of 16; Adam; one thread.
TorchJD has no form at the representation, so its figure is the exact one, the fastest of its ways. LibMTL's is that of
its `rep_grad`; a blank means that a library refuses the method there, or is not asked for it. All take turns, step by
step, in one process; a figure is the median of the ratios of CPU times to the step of equal weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from cases.balancers import torchjd_steps, ways_that_work
from cases.own_loop import OUTPUTS, Script, libmtl_step, loop_of_script
from harness import Sheet, Step, in_turns, ratio, say
from torch import nn

import mtlscale

ROWS, SIDE, FEATURES = 16, 32, 128
# Our name -> TorchJD's aggregator, LibMTL's weighting with its arguments.
METHODS: dict[str, tuple[str, str, dict[str, object]]] = {
    "mgda": ("MGDA", "MGDA", {"mgda_gn": "none"}),
    "imtl_g": ("IMTLG", "IMTL", {}),
    "cagrad": ("", "CAGrad", {"calpha": 0.5, "rescale": 1}),
    "pcgrad": ("PCGrad", "PCGrad", {}),
    "aligned_mtl": ("AlignedMTL", "", {}),
    "nash_mtl": ("", "", {}),
    "fairgrad": ("", "", {}),
    "upgrad": ("UPGrad", "", {}),
}
WAYS = ("exact", "at representation", "TorchJD exact", "LibMTL rep_grad")


def script(tasks: int) -> Script:
    """The script of a user with so many tasks on one image."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64), (64, FEATURES)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    inputs = torch.randn(ROWS, 3, SIDE, SIDE, generator=generator)
    heads = [nn.Linear(FEATURES, OUTPUTS) for _ in range(tasks)]
    targets = [torch.randint(OUTPUTS, (ROWS,), generator=generator) for _ in range(tasks)]
    return Script.of(trunk, [inputs], heads, targets)


def ours(tasks: int, method: str, **options: object) -> Step:
    """A step of our own loop."""
    made = script(tasks)
    balancer = mtlscale.TaskBalancer(method, shared=made.trunk, heads=made.heads, **options)

    def step() -> None:
        features, losses = made.forward()
        made.optimizer.zero_grad()
        balancer.backward(losses, features=features[0])
        made.optimizer.step()

    return step


def plain(tasks: int) -> Step:
    """A step of equal weights, by torch alone."""
    made = script(tasks)

    def step() -> None:
        _, losses = made.forward()
        made.optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        made.optimizer.step()

    return step


def line(tasks: int, method: str, options: argparse.Namespace) -> list[float | None]:
    """The ratios of a method's ways to the plain step."""
    aggregator, weighting, settings = METHODS[method]
    makers: dict[str, Callable[[], Step]] = {
        "exact": partial(ours, tasks, method),
        "at representation": partial(ours, tasks, method, at="representation"),
    }
    if options.libmtl and weighting:
        makers["LibMTL rep_grad"] = lambda: libmtl_step(script(tasks), weighting, settings, options.libmtl, True)
    what = f"{tasks} tasks {method}"
    steps = ways_that_work(makers, what)
    of_torchjd = torchjd_steps(lambda: loop_of_script(script(tasks)), aggregator, what) if aggregator else {}
    times = in_turns({"plain": plain(tasks), **steps, **of_torchjd}, options.turns)

    ratios: dict[str, float] = {way: ratio(times, way, "plain") for way in steps}
    if of_torchjd:
        ratios["TorchJD exact"] = min(ratio(times, way, "plain") for way in of_torchjd)
    return [ratios.get(way) for way in WAYS]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--libmtl", default="", help="folder that holds LibMTL's files; without it LibMTL is left out")
    parser.add_argument("--tasks", default="3,11,40", help="numbers of tasks, comma-separated")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated")
    parser.add_argument("--turns", type=int, default=9)


QUICK = {"tasks": "3", "methods": "mgda", "turns": 2}


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    for tasks in map(int, options.tasks.split(",")):
        sheet = Sheet(f"{tasks} tasks, times a step of equal weights", "method", *WAYS)
        for method in options.methods.split(","):
            sheet.row(method, *line(tasks, method, options))
        sheet.show()
        found = [row[2] for row in sheet.rows if row[2] is not None]
        say(f"{tasks} tasks: at the representation at most {max(found):.2f} times a plain step")
