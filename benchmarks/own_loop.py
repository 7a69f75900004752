"""What balancing costs in a training loop of one's own: TaskBalancer beside TorchJD and LibMTL, in one run.

    pip download --no-deps LibMTL==1.1.5 -d LIBMTL && unzip LIBMTL/*.whl -d LIBMTL     # into a folder of its own
    python benchmarks/own_loop.py --libmtl LIBMTL
    python benchmarks/own_loop.py --libmtl LIBMTL --problem one10 --methods mgda,pcgrad --no-memory

Problems, each a plain script of `nn.Module`s with Adam: `one10`: ten tasks on one input of 784 numbers, an MLP of 2 x
256 units, batches of 64; `one10wide`: 2 x 512 units, batches of 256; `texts4`: four tasks with texts of their own,
TextCNN (20,000 x 300 embedding, 3 x 100 filters, 256 tokens), batches of 32; `resnet3`: three tasks on one image of
64 x 64, ResNet-18, batches of 16.

TorchJD's figure is the fastest of its ways: autojac with all rows at once or one at a time, and autogram. LibMTL's
weightings and its hard sharing are imported from its files and its trainer's step is repeated here line by line,
without its meters, since its trainer wants "cuda:0" and its collection of networks an old torchvision. A blank means
that a library has no such method, or cannot do it on this problem; LibMTL's graddrop is another one, at the features.

A step is everything from the batch to updated parameters. The libraries take turns, step by step; a figure is the
median of the ratios to ours of the process's CPU times, of one thread. Peak memory is that of a process of its own
which builds the network and does three steps, less what its libraries hold (Linux).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from balancers import ResNet18, resident, seconds, zipf_tokens
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import mtlscale

Step = Callable[[], None]

OUTPUTS = 4
# Our name -> TorchJD's aggregator, LibMTL's weighting with its arguments.
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "equal": ("Mean", "EW", {}),
    "rlw": ("Random", "RLW", {"dist": "Normal"}),
    "mgda": ("MGDA", "MGDA", {"mgda_gn": "none"}),
    "pcgrad": ("PCGrad", "PCGrad", {}),
    "gradvac": ("GradVac", "GradVac", {"beta": 0.5}),
    "imtl_g": ("IMTLG", "IMTL", {}),
    "aligned_mtl": ("AlignedMTL", "", {}),
    "graddrop": ("GradDrop", "", {}),
}
LIBRARIES = ("ours", "TorchJD", "LibMTL")
GROUP = {"one10": 20, "one10wide": 5}  # steps between two turns


class TextCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20_000, 300)
        self.convolutions = nn.ModuleList(nn.Conv1d(300, 100, width) for width in (3, 5, 7))

    def forward(self, tokens: Tensor) -> Tensor:
        words = self.words(tokens).transpose(1, 2)
        return torch.cat([convolution(words).amax(2) for convolution in self.convolutions], 1).relu()


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())


class Script:
    """What a user's script has before its first step: a trunk, heads, an optimiser and a batch."""

    def __init__(self, problem: str) -> None:
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(1)
        self.own_inputs = problem == "texts4"
        if problem in ("one10", "one10wide"):
            tasks, rows, features = (10, 64, 256) if problem == "one10" else (10, 256, 512)
            self.trunk, self.inputs = mlp(features), [torch.randn(rows, 784, generator=generator)]
        elif problem == "texts4":
            tasks, rows, features = 4, 32, 300
            self.trunk = TextCNN()
            self.inputs = [zipf_tokens(rows, 256, 20_000, generator) for _ in range(tasks)]
        else:
            tasks, rows, features = 3, 16, 512
            self.trunk, self.inputs = ResNet18(), [torch.randn(rows, 3, 64, 64, generator=generator)]

        self.heads = nn.ModuleList(nn.Linear(features, OUTPUTS) for _ in range(tasks))
        self.targets = [torch.randint(OUTPUTS, (rows,), generator=generator) for _ in range(tasks)]
        self.shared = list(self.trunk.parameters())
        self.optimizer = torch.optim.Adam([*self.shared, *self.heads.parameters()], lr=1e-3, foreach=True)

    def forward(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the features, one or one per task, and the tasks' losses."""
        features = [self.trunk(inputs) for inputs in self.inputs]
        losses = [
            F.cross_entropy(head(features[task if self.own_inputs else 0]), target)
            for task, (head, target) in enumerate(zip(self.heads, self.targets, strict=True))
        ]
        return features, losses


def ours(problem: str, method: str) -> Step:
    script = Script(problem)
    balancer = mtlscale.TaskBalancer(method, shared=script.trunk, heads=script.heads)

    def step() -> None:
        features, losses = script.forward()
        script.optimizer.zero_grad()
        balancer.backward(losses, features=features if script.own_inputs else features[0])
        script.optimizer.step()

    return step


def torchjd(problem: str, method: str, way: str) -> Step:
    from torchjd import aggregation
    from torchjd.autogram import Engine
    from torchjd.autojac import backward, jac_to_grad, mtl_backward

    name, script = METHODS[method][0], Script(problem)
    chunk = 1 if way == "one row" else None

    def autojac() -> None:
        features, losses = script.forward()
        script.optimizer.zero_grad()
        if script.own_inputs:
            for loss, head in zip(losses, script.heads, strict=True):
                loss.backward(retain_graph=True, inputs=list(head.parameters()))
            backward(losses, inputs=script.shared, parallel_chunk_size=chunk)
        else:
            mtl_backward(losses, features=features[0], parallel_chunk_size=chunk)
        jac_to_grad(script.shared, aggregator)
        script.optimizer.step()

    def autogram() -> None:
        _, losses = script.forward()
        script.optimizer.zero_grad()
        stacked = torch.stack(losses)
        stacked.backward(weighting(engine.compute_gramian(stacked)))
        script.optimizer.step()

    if way == "autogram":
        engine, weighting = Engine(script.trunk, batch_dim=None), getattr(aggregation, f"{name}Weighting")()
        return autogram
    aggregator = getattr(aggregation, name)()
    return autojac


def libmtl(problem: str, method: str, folder: str) -> Step:
    if "LibMTL" not in sys.modules:  # without its __init__, which imports networks that need an old torchvision
        package = types.ModuleType("LibMTL")
        package.__path__ = [str(Path(folder) / "LibMTL")]
        sys.modules["LibMTL"] = package
    hard_sharing = importlib.import_module("LibMTL.architecture").HPS
    weighting = getattr(importlib.import_module("LibMTL.weighting"), METHODS[method][1])

    script = Script(problem)
    names = [str(task) for task in range(len(script.heads))]
    device, settings = torch.device("cpu"), METHODS[method][2]
    decoders = nn.ModuleDict(dict(zip(names, script.heads, strict=True)))

    class Model(hard_sharing, weighting):  # type: ignore[misc]  # as its trainer puts them together
        def __init__(self) -> None:
            super().__init__(names, lambda: script.trunk, decoders, False, script.own_inputs, device)
            self.init_param()

        def zero_grad_share_params(
            self,
        ) -> None:  # its weightings write into `.grad`, which today's torch has set to None
            self.encoder.zero_grad(set_to_none=False)

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)

    def step() -> None:
        losses = torch.zeros(len(names)).to(device)
        if script.own_inputs:
            for place, name in enumerate(names):
                prediction = model(script.inputs[place], name)[name]
                losses[place] = F.cross_entropy(prediction, script.targets[place])
        else:
            predictions = model(script.inputs[0])
            for place, name in enumerate(names):
                losses[place] = F.cross_entropy(predictions[name], script.targets[place])
        optimizer.zero_grad()
        model.backward(losses, **settings)
        optimizer.step()

    return step


def ways_of(library: str, problem: str, method: str, folder: str) -> dict[str, Step]:
    """A library's ways to do the step; those that do not work are left out."""
    if library == "ours":
        return {"ours": ours(problem, method)}
    makers: dict[str, Callable[[], Step]] = {}
    if library == "TorchJD":
        makers = {way: lambda way=way: torchjd(problem, method, way) for way in ("autojac", "one row", "autogram")}  # type: ignore[misc]
    elif folder and METHODS[method][1]:
        makers = {"LibMTL": lambda: libmtl(problem, method, folder)}

    steps = {}
    for way, make in makers.items():
        try:
            step = make()
            step()
            steps[way] = step
        except Exception as error:  # not every method and network is supported in every way
            print(f"{problem} {method}: {way} does not work: {type(error).__name__}: {str(error)[:100]}", flush=True)
    return steps


def compare(steps: dict[str, Step], turns: int, group: int) -> tuple[float, dict[str, float]]:
    """(median seconds of our step, way -> median of the ratios of our time to its)."""
    times: dict[str, list[float]] = {way: [] for way in steps}
    for turn in range(turns + 1):
        order = list(steps) if turn % 2 else list(reversed(steps))
        for way in order:
            spent = sum(seconds(steps[way], "cpu") for _ in range(group))
            if turn:  # the first warms up
                times[way].append(spent / group)
    mine = times["ours"]
    ratios = {way: statistics.median(a / b for a, b in zip(mine, other, strict=True)) for way, other in times.items()}
    return statistics.median(mine), ratios


def peak_mib(library: str, way: str, problem: str, method: str, folder: str) -> float:
    request = json.dumps([library, way, problem, method, folder])
    done = subprocess.run([sys.executable, __file__, "--memory-of", request], capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1]) if done.returncode == 0 else float("nan")


def measure_memory(library: str, way: str, problem: str, method: str, folder: str) -> None:
    """Print the peak of this process from here on, in MiB over what it holds now."""
    first = {
        "ours": ours,
        "TorchJD": lambda p, m: torchjd(p, m, "autojac"),
        "LibMTL": lambda p, m: libmtl(p, m, folder),
    }
    first[library]("one10", "equal")()  # what loads on first use
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    makers = {**first, "TorchJD": lambda p, m: torchjd(p, m, way)}
    step = makers[library](problem, method)
    for _ in range(3):
        step()
    print(resident("VmHWM") - before)


def line(problem: str, method: str, arguments: argparse.Namespace) -> tuple[list[str], list[float]]:
    """The cells of a line of the table, and our time and memory over those of the better peer."""
    found = {library: ways_of(library, problem, method, arguments.libmtl) for library in LIBRARIES}
    steps = {way: step for ways in found.values() for way, step in ways.items()}
    base, ratios = compare(steps, arguments.turns, GROUP.get(problem, 1))
    best_way = {library: max(ways, key=ratios.__getitem__) for library, ways in found.items() if ways}
    time_ratio = max(ratios[way] for library, way in best_way.items() if library != "ours")

    memory = {}
    if not arguments.no_memory:
        memory = {
            library: peak_mib(library, way, problem, method, arguments.libmtl) for library, way in best_way.items()
        }
    peers = [mib for library, mib in memory.items() if library != "ours" and mib == mib]
    memory_ratio = memory["ours"] / min(peers) if peers else float("nan")

    cells = [method, f"{base * 1e3:.1f}"]
    for library in LIBRARIES[1:]:
        way = best_way.get(library)
        cells.append("" if way is None else f"{base * 1e3 / ratios[way]:.1f}" + (f" ({way})" if way != library else ""))
    cells.append(f"{time_ratio:.2f}")
    cells += [f"{memory[library]:.0f}" if library in memory else "" for library in LIBRARIES]
    return [*cells, f"{memory_ratio:.2f}" if peers else ""], [time_ratio, memory_ratio]


def table(problem: str, methods: Sequence[str], arguments: argparse.Namespace) -> list[float]:
    columns = (
        "method",
        "ours ms",
        "TorchJD ms",
        "LibMTL ms",
        "ours / faster",
        "ours MiB",
        "TorchJD",
        "LibMTL",
        "/ less",
    )
    shown, worst = Table(*columns, title=problem), [0.0, 0.0]
    for method in methods:
        cells, ratios = line(problem, method, arguments)
        shown.add_row(*cells)
        print(problem, *cells, sep=" | ", flush=True)
        worst = [max(a, b) if b == b else a for a, b in zip(worst, ratios, strict=True)]
    Console(width=120).print(shown)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libmtl", default="", help="folder that holds LibMTL's files; without it LibMTL is left out")
    parser.add_argument("--problem", default="one10,one10wide,texts4,resnet3", help="comma-separated")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        measure_memory(*json.loads(arguments.memory_of))
        return
    for problem in arguments.problem.split(","):
        times, memory = table(problem, arguments.methods.split(","), arguments)
        print(f"{problem}: largest ratio of times {times:.2f}, of memory {memory:.2f}", flush=True)


if __name__ == "__main__":
    main()
