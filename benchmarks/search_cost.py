"""What a search of where to share costs: memory and time of its steps, beside hard sharing's, on binary tasks of faces.

    python benchmarks/search_cost.py --source DIR           # CelebA's 40 attributes (default: $MTLSCALE_DATA/celeba)
    python benchmarks/search_cost.py --random               # the same with random images and labels
    python benchmarks/search_cost.py --random --tasks 3 --methods conal,ltb --skip memory

Memory: a process for each method and number of tasks makes a few steps in each phase of its search; the figure is the
resident memory at its peak less that before the network was there. CoNAL-Pro's stages are phases, the dearest is its
peak. Which tasks leave at a stage is decided by steps too few to learn anything; `--stay` keeps all of them for the
last stage, the most a search can cost. Time: a process in which the method's steps and hard sharing's take turns; the
figure is the median of the ratios of their CPU times, one thread each. Modules: a supernet's forward and backward pass
in turns with its module evaluations made one by one on inputs cut off from each other: shared modules once, a task's
private module q once for each of the q branch points that reach it, heads once.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
HPS, SUPERNET, STAGED = "hps", "conal", "conal_pro"
MEMORY_LIMIT, MODULES_LIMIT = 0.5, 1.15
METHODS = f"{SUPERNET},{STAGED}"
TASKS = "3,9,40"
STEPS = 2  # of a phase whose memory is looked at
MIB = 1 << 20


# -- in a process of its own -------------------------------------------------------------------------------------------


class Side:
    """A method on the first so many tasks, at the beginning of its first phase."""

    def __init__(self, options: argparse.Namespace, method: str, tasks: int) -> None:
        import torch

        from mtlscale.config import Experiment, Task, TaskSuite
        from mtlscale.data import Samples
        from mtlscale.data.readers.prepared import PreparedData
        from mtlscale.training import Trainer

        content = torch.load(options.data)
        names = content["names"][:tasks]
        suite = TaskSuite(
            name="celeba",
            tasks=tuple(Task(name=name, loss="bce", outputs=1, metrics=("error",)) for name in names),
            inputs="shared",
            input_kind="image",
            input_shape=tuple(content["inputs"].shape[1:]),
        )
        targets = {name: content["targets"][:, place].clone() for place, name in enumerate(names)}
        samples = {"all": Samples(content["inputs"], targets)}
        data = PreparedData(Path(), None, suite, {"train": samples, "val": samples, "test": samples})  # type: ignore[arg-type]
        experiment = Experiment.model_validate(
            {
                "name": "search_cost",
                "datasets": ["celeba"],
                "methods": [method],
                "floors": [],
                "model": {"encoder": {"name": "resnet18", "width": options.width}},
                "training": {"batch_size": options.batch, "lr": 1e-4, "channels_last": True, "epochs": 1},
            }
        )
        (run,) = experiment.runs({"celeba": "f00d"})
        self.trainer = Trainer(run, data)
        self.suite = suite
        self.parts: list[Any] = []

    def search(self) -> Iterator[str]:
        """The names of the phases before the last, or of the only one, each with its network and a step's batches."""
        trainer = self.trainer
        while True:
            trainer.model.train()
            wanted = zip(*(updater.steps(1) for updater in trainer.session.updaters), strict=True)
            with closing(trainer.batches.steps(wanted, 1)) as steps:
                self.parts = next(steps)
            last = trainer.at.place + 1 >= len(trainer.phases)
            if last and len(trainer.phases) > 1:
                return
            yield trainer.phase.name
            if last:
                return
            trainer.at.epoch = trainer.epochs
            trainer._handed_over()

    def step(self) -> None:
        for updater, part in zip(self.trainer.session.updaters, self.parts, strict=True):
            self.trainer.session.step(updater, part.micros, part.query)


def seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def resident(peak: bool = False) -> float:
    """MiB of this process."""
    key = "VmHWM:" if peak else "VmRSS:"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def tidy() -> None:
    """Give back what is free, and forget the peak so far."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def memory(options: argparse.Namespace, method: str, tasks: int) -> dict[str, float]:
    """Phase -> MiB at its peak, less those before any network was there."""
    warm = Side(options, HPS, 2)  # libraries, kernels
    for _ in warm.search():
        warm.step()
    del warm
    tidy()
    before, found = resident(), {}
    side = Side(options, method, tasks)
    for phase in side.search():
        tidy()
        for _ in range(STEPS):
            side.step()
        found[phase] = resident(peak=True) - before
        if options.stay:
            keep_all(side)
    return found


def keep_all(side: Side) -> None:
    """No task takes the shared option of this stage, the first of its two."""
    import torch

    model = side.trainer.model
    with torch.no_grad():
        for group in (name for name in model.groups() if name == "architecture"):
            for logits in model.groups()[group]:
                logits.copy_(torch.linspace(-1.0, 1.0, logits.shape[-1]).expand_as(logits))


def times(options: argparse.Namespace, method: str, tasks: int) -> dict[str, tuple[float, float, float]]:
    """Phase -> (median of the ratios, seconds of a step of the search, and of hard sharing)."""
    hard, side, found = Side(options, HPS, tasks), Side(options, method, tasks), {}
    next(hard.search())
    many = 4  # a step of hard sharing is short

    def group() -> None:
        for _ in range(many):
            hard.step()

    for phase in side.search():
        hard.step()
        side.step()
        pairs = [(seconds(side.step), seconds(group) / many) for _ in range(options.turns)]
        search, step = (statistics.median(column) for column in zip(*pairs, strict=True))
        found[phase] = (statistics.median(a / b for a, b in pairs), search, step)
    return found


def modules(options: argparse.Namespace, method: str, tasks: int) -> tuple[float, float, float]:
    """(median of the ratios, seconds of the supernet's forward and backward pass, and of its module evaluations)."""
    import torch

    side = Side(options, method, tasks)
    next(side.search())
    model, parts = side.trainer.model, side.parts
    (batch,) = parts[0].micros[0]

    def whole() -> None:
        predictions = model(batch).predictions
        torch.stack([prediction.sum() for prediction in predictions.values()]).sum().backward()
        model.zero_grad(set_to_none=True)

    encoder = side.trainer.run.parts.encoder
    copies = [encoder.build(side.suite).to(memory_format=torch.channels_last).train() for _ in range(tasks + 1)]
    heads = [copies[0].head(task, 0.0) for task in side.suite.tasks]
    with torch.no_grad():
        inputs = [copies[0].prepare(batch.inputs)]
        for place in range(len(copies[0].stages)):
            inputs.append(copies[0].stage(place, inputs[-1], {}))
        features = copies[0].finish(inputs[-1])
    upstream = [torch.ones_like(value) for value in inputs]

    def alone() -> None:
        for number, copy in enumerate(copies):
            for place in range(len(copy.stages)):
                for _ in range(place + 1 if number else 1):
                    given = inputs[place].detach().requires_grad_(place > 0)
                    copy.stage(place, given, {}).backward(upstream[place + 1])
            copy.zero_grad(set_to_none=True)
        for head in heads:
            head(features.detach().requires_grad_()).sum().backward()
            head.zero_grad(set_to_none=True)

    whole(), alone()
    pairs = [(seconds(whole), seconds(alone)) for _ in range(options.turns)]
    net, each = (statistics.median(column) for column in zip(*pairs, strict=True))
    return statistics.median(a / b for a, b in pairs), net, each


KINDS: dict[str, Callable[[argparse.Namespace, str, int], Any]] = {"memory": memory, "time": times, "modules": modules}


# -- in the process that is called -------------------------------------------------------------------------------------


def images(options: argparse.Namespace, folder: Path) -> tuple[Path, str]:
    """A file of images and labels of 40 tasks, and in words what they are."""
    import torch

    count = 4 * options.batch
    if options.source is None:
        generator = torch.Generator().manual_seed(0)
        size = (count, 3, options.size, options.size)
        inputs = torch.randint(256, size, generator=generator, dtype=torch.uint8)
        targets = torch.randint(2, (count, 40), generator=generator).float()
        names, what = [f"task{place:02d}" for place in range(40)], "random images and labels"
    else:
        from mtlscale.data.readers.prepared import load_prepared
        from mtlscale.execution.preparing.prepare import prepare

        chosen = {"size": options.size, "attributes": "all", "split": "own"}
        data = load_prepared(prepare("celeba", chosen, options.source, folder))
        samples = data.splits["train"]["all"].take(torch.arange(count))
        names, inputs, what = [task.name for task in data.suite.tasks], samples.inputs, "CelebA's attributes"
        targets = torch.stack([samples.targets[name].float() for name in names], 1)
    path = folder / "images.pt"
    torch.save({"inputs": inputs, "targets": targets, "names": names}, path)
    return path, what


def ask(kind: str, method: str, tasks: int, arguments: list[str]) -> Any:
    """What a process of its own finds."""
    command = [sys.executable, __file__, "--child", kind, "--methods", method, "--tasks", str(tasks), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{kind} of {method} on {tasks} tasks failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def verdict(console: Console, what: str, value: float, limit: float) -> None:
    console.print(f"{what}: {value:.2f}, wanted at most {limit:g}: {'yes' if value <= limit else 'NO'}")


def show(options: argparse.Namespace, arguments: list[str], console: Console) -> None:
    methods, sizes = options.methods.split(","), [int(tasks) for tasks in options.tasks.split(",")]
    if "memory" not in options.skip:
        table = Table("tasks", "method", "phase", "MiB at the peak", title="memory of a search step")
        peak: dict[tuple[str, int], float] = {}
        for tasks in sizes:
            for method in (HPS, *methods):
                found = ask("memory", method, tasks, arguments)
                peak[method, tasks] = max(found.values())
                for phase, value in found.items():
                    table.add_row(str(tasks), method, phase, f"{value:.0f}")
        console.print(table)
        for tasks in sizes:
            if {SUPERNET, STAGED} <= set(methods):
                ratio = peak[STAGED, tasks] / peak[SUPERNET, tasks]
                what = f"peak of {STAGED} over that of {SUPERNET}, {tasks} tasks"
                if tasks == max(sizes):
                    verdict(console, what, ratio, MEMORY_LIMIT)
                else:
                    console.print(f"{what}: {ratio:.2f}")
    if "time" not in options.skip:
        table = Table("tasks", "method", "phase", "ms", f"{HPS} ms", "ratio", title=f"a search step over one of {HPS}")
        for tasks in sizes:
            for method in methods:
                for phase, (ratio, search, step) in ask("time", method, tasks, arguments).items():
                    table.add_row(str(tasks), method, phase, f"{search * 1e3:.0f}", f"{step * 1e3:.1f}", f"{ratio:.1f}")
        console.print(table)
    if "modules" not in options.skip and SUPERNET in methods:
        table = Table("tasks", "supernet ms", "evaluations ms", "ratio", title="a supernet over what it consists of")
        worst = 0.0
        for tasks in sizes:
            ratio, net, each = ask("modules", SUPERNET, tasks, arguments)
            worst = max(worst, ratio)
            table.add_row(str(tasks), f"{net * 1e3:.0f}", f"{each * 1e3:.0f}", f"{ratio:.3f}")
        console.print(table)
        verdict(console, "a supernet's pass over its module evaluations, at most", worst, MODULES_LIMIT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get("MTLSCALE_DATA")
    default = Path(given) / "celeba" if given and (Path(given) / "celeba").is_dir() else None
    parser.add_argument("--source", type=Path, default=default, help="CelebA as `mtlscale prepare celeba` takes it")
    parser.add_argument("--random", action="store_true", help="random images even where a source is known")
    parser.add_argument("--tasks", default=TASKS, help="comma-separated, at most 40")
    parser.add_argument("--methods", default=METHODS, help=f"comma-separated, beside {HPS}")
    parser.add_argument("--width", type=int, default=16, help="channels of the ResNet-18's first layer")
    parser.add_argument("--size", type=int, default=64, help="pixels of height and width")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--stay", action="store_true", help=f"no task leaves {STAGED} before its last stage")
    parser.add_argument("--skip", default="", help=f"comma-separated of {', '.join(KINDS)}")
    parser.add_argument("--child", choices=tuple(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        import torch

        torch.set_num_threads(1)
        print(json.dumps(KINDS[options.child](options, options.methods, int(options.tasks))))
        return
    if options.random:
        options.source = None
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder:
        path, what = images(options, Path(folder))
        console.print(f"{what}, {options.size} x {options.size}, ResNet-18 of width {options.width}, "
                      f"batches of {options.batch}")  # fmt: skip
        same = ["width", "size", "batch", "turns"]
        arguments = [f"--{name}={getattr(options, name)}" for name in same]
        show(options, [*arguments, f"--data={path}", *(["--stay"] if options.stay else [])], console)


if __name__ == "__main__":
    main()
