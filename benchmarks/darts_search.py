"""What a step of a search for cells costs: beside a step of the supernet's weights alone, and grouped beside plain.

    python benchmarks/darts_search.py                                # small: 5 cells, 4 channels, 16x16, batch 64
    python benchmarks/darts_search.py --cells 8 --channels 16 --size 32 --device cuda --amp bf16
    python benchmarks/darts_search.py --skip memory

From a checkout; pictures are random. Time: steps of the methods and of the supernet's weights (its forward and backward
pass on one batch, and SGD) take turns; the figure is the median of the ratios, of CPU time on the host with one thread,
of wall time on a GPU. Grouped: the same supernet's step with every operation of every edge called by itself. Memory: a
process for each; resident memory at its peak less that before the network was there, on a GPU what torch allocates.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import torch  # noqa: E402
from plain_cells import plain  # noqa: E402

from mtlscale.config import Run, Task, TaskSuite, TrainingSpec  # noqa: E402
from mtlscale.config.registry import components  # noqa: E402
from mtlscale.config.run.run_parts import Parts  # noqa: E402
from mtlscale.data import Samples, Workers  # noqa: E402
from mtlscale.data.readers.random_access import DeviceReader  # noqa: E402
from mtlscale.nas.search.mixed_cell import LeavingStates  # noqa: E402
from mtlscale.training import Batches, begin  # noqa: E402

WEIGHTS = "weights alone"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "darts": ("darts", {}),
    "darts, second order": ("darts", {"order": "second"}),
    "pcdarts": ("pcdarts", {"rest": 0.0}),
    "e2rnas": ("e2rnas", {}),
    "e2rnas, no images from elsewhere": ("e2rnas", {"ood": False}),
    "e2rnas, second order": ("e2rnas", {"order": "second"}),
}
UNITS = {"parameter_unit": None, "flops_unit": None, "target_parameters": 0.4}


def steps_of(method: str, options: argparse.Namespace) -> Callable[[], None]:
    """A function that makes the next step of a method's search, or of the supernet's weights alone."""
    name, knobs = METHODS["darts" if method == WEIGHTS else method]
    knobs = {"search_cells": options.cells, "search_channels": options.channels, **knobs}
    knobs |= UNITS if name == "e2rnas" else {}
    encoder = {"cells": 1, "channels": 1, "cutout": 0}
    balancer = ("mgda", {"normalize": "l2"}) if name == "e2rnas" else ("equal", {})
    parts = Parts(
        architecture=components.build("architectures", name, knobs),
        balancer=components.build("balancers", *balancer),
        objective=None,
        encoder=components.build("encoders", "darts_cells", encoder),
        dropout=0.0,
        training=TrainingSpec(batch_size=options.batch, amp=options.amp, channels_last=options.channels_last),
    )
    suite = TaskSuite(
        name="pictures",
        tasks=(Task(name="kind", loss="cross_entropy", outputs=10, metrics=("accuracy",)),),
        inputs="shared",
        input_kind="image",
        input_shape=(3, options.size, options.size),
        unlabelled=("ood",),
    )
    generator = torch.Generator().manual_seed(0)
    rows = 4 * options.batch

    def drawn() -> torch.Tensor:
        return torch.randint(256, (rows, *suite.input_shape), generator=generator, dtype=torch.uint8)

    labels = {"kind": torch.randint(10, (rows,), generator=generator)}
    splits = {"train": {"all": Samples(drawn(), labels), "ood": Samples(drawn(), {})}}
    device = torch.device(options.device)
    batches = Batches(
        DeviceReader(splits, device, torch.float32), suite, device=device, dtype=torch.float32, workers=Workers()
    )
    named = dict.fromkeys(("experiment", "dataset", "data", "method", "fingerprint"), "drill")
    run = Run.of_parts(parts, **named, seed=0, spec={"dataset": {}, **parts.plain()})
    session = begin(run, suite, parts.architecture.phases()[0], None, batches, device=device, workers=Workers())
    session.model.train()
    updaters = session.updaters[1:] if method == WEIGHTS else session.updaters

    def endless() -> Any:
        epoch = 0
        while True:
            epoch += 1
            yield from batches.steps(zip(*(updater.steps(epoch) for updater in session.updaters), strict=True), epoch)

    steps = endless()

    def step() -> None:
        made = next(steps)
        for updater, part in zip(session.updaters, made, strict=True):
            if updater in updaters:
                session.show(updater, [each.micros for each in made])
                session.step(updater, part.micros)

    return step


def seconds(step: Callable[[], None], cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    clock = time.perf_counter if cuda else time.process_time
    started = clock()
    step()
    if cuda:
        torch.cuda.synchronize()
    return clock() - started


def ungrouped(step: Callable[[], None]) -> Callable[[], None]:
    """The step with every operation called by itself."""

    def alone() -> None:
        grouped = LeavingStates.forward
        LeavingStates.forward = lambda self, *given: plain(self, *given)  # type: ignore[method-assign]
        try:
            step()
        finally:
            LeavingStates.forward = grouped  # type: ignore[method-assign]

    return alone


def resident() -> float:
    """MiB at the peak of this program; `ru_maxrss` would count that of who started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def memory(method: str, options: argparse.Namespace) -> float:
    """MiB at the peak of three steps, in this process."""
    cuda = options.device.startswith("cuda")
    torch.zeros(1, device=options.device)
    before = resident()
    step = steps_of(method, options)
    for _ in range(3):
        step()
    return torch.cuda.max_memory_allocated() / 2**20 if cuda else resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--amp", default="off", choices=("off", "bf16"))
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--methods", default=";".join(METHODS))
    parser.add_argument("--skip", default="", help="memory, grouped")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        print(json.dumps(memory(options.measure, options)))
        return
    cuda = options.device.startswith("cuda")
    methods = options.methods.split(";")
    steps = {name: steps_of(name, options) for name in (WEIGHTS, *methods)}
    if "grouped" not in options.skip:
        steps["weights alone, plain calls"] = ungrouped(steps[WEIGHTS])
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.turns + 2):
        for name, step in steps.items():
            taken = seconds(step, cuda)
            if turn > 1:
                found[name].append(taken)
    peaks = {}
    for name in () if "memory" in options.skip else (WEIGHTS, *methods):
        told = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--measure", name], capture_output=True, text=True, check=True
        )
        peaks[name] = float(json.loads(told.stdout.splitlines()[-1]))
    where = torch.cuda.get_device_name() if cuda else "one thread of a CPU"
    size = f"{options.size}x{options.size}"
    print(f"{options.cells} cells, {options.channels} channels, {size}, batch {options.batch}, {where}")
    print("| step | ms | ratio | images/s | MiB |\n| --- | --- | --- | --- | --- |")
    for name, taken in found.items():
        ratio = statistics.median(a / b for a, b in zip(taken, found[WEIGHTS], strict=True))
        middle, peak = statistics.median(taken), peaks.get(name)
        told = "" if peak is None else f"{peak:.0f}"
        print(f"| {name} | {1000 * middle:.1f} | {ratio:.2f} | {options.batch / middle:.0f} | {told} |")


if __name__ == "__main__":
    main()
