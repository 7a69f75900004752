"""What balancing costs in a training loop of one's own: TaskBalancer beside TorchJD and LibMTL, in one run.

    pip download --no-deps LibMTL==1.1.5 -d LIBMTL && unzip LIBMTL/*.whl -d LIBMTL     # into a folder of its own
    python benchmarks/run.py own_loop --libmtl LIBMTL
    python benchmarks/run.py own_loop --libmtl LIBMTL --problem one10 --methods mgda,pcgrad --no-memory

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
import importlib
import statistics
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from cases.balancers import Loop, ResNet18, load_solvers, torchjd_step, torchjd_steps, ways_that_work, zipf_tokens
from harness import Sheet, Step, apart, in_turns, peak_mib, ratio, say
from torch import Tensor, nn
from torch.nn import functional as F

import mtlscale

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
        trunk: nn.Module
        if problem in ("one10", "one10wide"):
            tasks, rows, features = (10, 64, 256) if problem == "one10" else (10, 256, 512)
            trunk, inputs = mlp(features), [torch.randn(rows, 784, generator=generator)]
        elif problem == "texts4":
            tasks, rows, features = 4, 32, 300
            trunk = TextCNN()
            inputs = [zipf_tokens(rows, 256, 20_000, generator) for _ in range(tasks)]
        else:
            tasks, rows, features = 3, 16, 512
            trunk, inputs = ResNet18(), [torch.randn(rows, 3, 64, 64, generator=generator)]

        heads = [nn.Linear(features, OUTPUTS) for _ in range(tasks)]
        self._take(trunk, inputs, heads, [torch.randint(OUTPUTS, (rows,), generator=generator) for _ in range(tasks)])

    @classmethod
    def of(
        cls, trunk: nn.Module, inputs: list[Tensor], heads: Sequence[nn.Module], targets: Sequence[Tensor]
    ) -> Script:
        """Return the script of another problem, whose tasks have one input."""
        script = cls.__new__(cls)
        script.own_inputs = False
        script._take(trunk, inputs, heads, targets)
        return script

    def _take(
        self, trunk: nn.Module, inputs: list[Tensor], heads: Sequence[nn.Module], targets: Sequence[Tensor]
    ) -> None:
        self.trunk, self.inputs, self.heads, self.targets = trunk, inputs, nn.ModuleList(heads), targets
        self.shared = list(trunk.parameters())
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


def loop_of(problem: str) -> Loop:
    return loop_of_script(Script(problem))


def loop_of_script(script: Script) -> Loop:
    """Return the parts of a script that TorchJD's ways need."""
    heads = [list(head.parameters()) for head in script.heads]
    return Loop(script.forward, script.trunk, heads, script.shared, script.optimizer, script.own_inputs)


def libmtl(problem: str, method: str, folder: str) -> Step:
    return libmtl_step(Script(problem), *METHODS[method][1:], folder)


def libmtl_step(
    script: Script, weighting_name: str, settings: dict[str, Any], folder: str, rep_grad: bool = False
) -> Step:
    """Return a step of LibMTL's trainer, exact or, with `rep_grad`, with gradients at the representation."""
    if "LibMTL" not in sys.modules:  # without its __init__, which imports networks that need an old torchvision
        package = types.ModuleType("LibMTL")
        package.__path__ = [str(Path(folder) / "LibMTL")]
        sys.modules["LibMTL"] = package
    hard_sharing = importlib.import_module("LibMTL.architecture").HPS
    weighting = getattr(importlib.import_module("LibMTL.weighting"), weighting_name)

    names = [str(task) for task in range(len(script.heads))]
    device = torch.device("cpu")
    decoders = nn.ModuleDict(dict(zip(names, script.heads, strict=True)))

    class Model(hard_sharing, weighting):  # type: ignore[misc]  # as its trainer puts them together
        def __init__(self) -> None:
            super().__init__(names, lambda: script.trunk, decoders, rep_grad, script.own_inputs, device)
            self.init_param()

        def zero_grad_share_params(self) -> None:  # its weightings write into `.grad`, which is None today
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
    what = f"{problem} {method}"
    if library == "ours":
        return {"ours": ours(problem, method)}
    if library == "TorchJD":
        return torchjd_steps(lambda: loop_of(problem), METHODS[method][0], what)
    known = bool(folder and METHODS[method][1])
    return ways_that_work({"LibMTL": lambda: libmtl(problem, method, folder)}, what) if known else {}


def peak_of(library: str, way: str, problem: str, method: str, folder: str) -> float:
    """In a process of its own; NaN where the library cannot do it."""
    makers: dict[str, Callable[[str, str, str], Step]] = {
        "ours": lambda problem, method, way: ours(problem, method),
        "TorchJD": lambda problem, method, way: torchjd_step(loop_of(problem), METHODS[method][0], way),
        "LibMTL": lambda problem, method, way: libmtl(problem, method, folder),
    }
    torch.set_num_threads(1)
    if library == "ours":
        load_solvers()
    try:
        make = makers[library]
        return peak_mib(make("one10", "equal", "autojac"), lambda: make(problem, method, way))
    except Exception:
        return float("nan")


def line(problem: str, method: str, options: argparse.Namespace) -> list[Any]:
    """The cells of a line of the table, with our time and memory over those of the better peer."""
    found = {library: ways_of(library, problem, method, options.libmtl) for library in LIBRARIES}
    steps = {way: step for ways in found.values() for way, step in ways.items()}
    times = in_turns(steps, options.turns, GROUP.get(problem, 1))
    ratios = {way: ratio(times, "ours", way) for way in steps}
    best_way = {library: max(ways, key=ratios.__getitem__) for library, ways in found.items() if ways}
    peers = [library for library in best_way if library != "ours"]

    base = 1e3 * statistics.median(times["ours"])
    cells: list[Any] = [method, f"{base:.1f}"]
    for library in LIBRARIES[1:]:
        way = best_way.get(library)
        cells.append(None if way is None else f"{base / ratios[way]:.1f}" + (f" ({way})" if way != library else ""))
    cells.append(max((ratios[best_way[library]] for library in peers), default=None))

    memory: dict[str, float] = {}
    if not options.no_memory:
        memory = {
            library: apart(peak_of, library, way, problem, method, options.libmtl) for library, way in best_way.items()
        }
    known = [memory[library] for library in peers if library in memory and memory[library] == memory[library]]
    mib = [f"{memory[library]:.0f}" if library in memory else None for library in LIBRARIES]
    return [*cells, *mib, memory["ours"] / min(known) if known else None]


def table(problem: str, methods: Sequence[str], options: argparse.Namespace) -> None:
    times = ("ours ms", "TorchJD ms", "LibMTL ms", "ours / faster")
    sheet = Sheet(problem, "method", *times, "ours MiB", "TorchJD", "LibMTL", "/ less")
    for method in methods:
        sheet.row(*line(problem, method, options))
    sheet.show()
    largest = [max((row[column] for row in sheet.rows if row[column]), default=float("nan")) for column in (4, 8)]
    say(f"{problem}: largest ratio of times {largest[0]:.2f}, of memory {largest[1]:.2f}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--libmtl", default="", help="folder that holds LibMTL's files; without it LibMTL is left out")
    parser.add_argument("--problem", default="one10,one10wide,texts4,resnet3", help="comma-separated")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--no-memory", action="store_true")


QUICK = {"problem": "one10", "methods": "mgda", "turns": 2}


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    for problem in options.problem.split(","):
        table(problem, options.methods.split(","), options)
