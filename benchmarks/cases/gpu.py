"""A drill for one GPU: does it compute what the host computes, what does a step cost, how often does the host wait?

    python benchmarks/run.py gpu                          # 15 minutes at most; without a GPU it says so and ends
    python benchmarks/run.py gpu --output gpu.md
    python benchmarks/run.py gpu --device cpu --small     # whether the drill itself works

From a checkout, with Python 3.11 or later, torch 2.9 or later, numpy, scipy, pydantic, pyyaml and pyarrow; with
torchvision also the residual networks. Data are made here.

Steps are those of a run: `Session.step` on the batches of a sampler. *Correctness*: parameters after a few steps of
SGD, their distance to the host's in float64 over how far they moved. float64 may be off by 1e-8, float32 by ten times
what the host is off in float32, and by 1e-3 in any case. *Cost*: steps of a method and of equal weighting alternate;
the figure is the median of the ratios. Peak memory is what three steps allocate at most beyond network and data.
*Waits*: per step, by torch's own count (`set_sync_debug_mode`) and by the profiler (`cudaStreamSynchronize`, copies to
and from the host). *Mixed precision*: time over that of float32, skipped steps, whether all parameters are finite.
*Cells*: images a second, in a search of both halves, of DARTS' search network and of the one that is trained.
*Learners*: updates a second of soft actor-critic on ten tasks (critics, actor, temperatures); the replay is the host's.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

REQUIRED = {
    "torch": "torch", "numpy": "numpy", "scipy": "scipy", "pydantic": "pydantic", "yaml": "pyyaml", "pyarrow": "pyarrow"
}  # fmt: skip
if missing := [name for module, name in REQUIRED.items() if importlib.util.find_spec(module) is None]:
    sys.exit(f"needs {', '.join(missing)}: pip install {' '.join(missing)}")
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from mtlscale.config import Run, Task, TaskSuite, TrainingSpec  # noqa: E402
from mtlscale.config.registry import components  # noqa: E402
from mtlscale.config.run.run_parts import Parts  # noqa: E402
from mtlscale.data import Samples, Workers  # noqa: E402
from mtlscale.data.readers.random_access import DeviceReader, HostReader, Reader  # noqa: E402
from mtlscale.rl.environments import ACTIONS, EXTRA, OBSERVATIONS, Simulated  # noqa: E402
from mtlscale.rl.sac.module import SACModule  # noqa: E402
from mtlscale.rl.sac.replay_buffer import Transitions  # noqa: E402
from mtlscale.training import Batches, Session, begin  # noqa: E402

Named = tuple[str, dict[str, Any]]  # a component and its options

CLASSES, NUMBER, FOUR = ("cross_entropy", "accuracy"), ("l1", "mae"), ("cross_entropy", "accuracy", 4)
EXACT, ROUNDED = 1e-8, 1e-3  # how far off float64 and float32 may be, whatever the host is
DRAWN_THERE = ("graddrop",)  # draws on the device, whose generator gives other numbers


@dataclass(frozen=True)
class Problem:
    """Data, a network and a batch size. tasks: (loss, metric, outputs) of each."""

    name: str
    kind: str  # of the inputs
    shape: tuple[int, ...]
    tasks: tuple[tuple[str, str, int], ...]
    encoder: Named
    batch: int
    own: bool = False
    vocabulary: int | None = None
    architecture: Named = ("hps", {})
    methods: tuple[str, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def suite(self) -> TaskSuite:
        tasks = [
            Task(name=f"t{index}", loss=loss, outputs=outputs, metrics=(metric,))
            for index, (loss, metric, outputs) in enumerate(self.tasks)
        ]
        return TaskSuite(
            name=self.name,
            tasks=tuple(tasks),
            inputs="per_task" if self.own else "shared",
            input_kind=self.kind,  # type: ignore[arg-type]
            input_shape=self.shape,
            vocabulary_size=self.vocabulary,
            extras=self.extras,
        )

    def data(self) -> dict[str, Samples]:
        """Stream -> two batches of samples whose labels follow from the inputs, but for some noise."""
        suite, generator = self.suite, torch.Generator().manual_seed(1)
        by_name = {task.name: task for task in suite.tasks}
        found = {}
        for stream, names in suite.streams.items():
            inputs = self._inputs(2 * self.batch, generator)
            found[stream] = Samples(inputs, {n: self._target(by_name[n], inputs, generator) for n in names})
        return found

    def _inputs(self, rows: int, generator: torch.Generator) -> Tensor:
        if self.kind == "vector":
            return torch.randn(rows, *self.shape, generator=generator)
        if self.kind == "image":
            return torch.randint(256, (rows, *self.shape), generator=generator, dtype=torch.uint8)
        assert self.vocabulary is not None  # frequencies fall like those of words, lengths vary
        words = torch.exp(torch.rand(rows, *self.shape, generator=generator) * torch.tensor(self.vocabulary).log())
        ends = torch.randint(self.shape[0] // 2, self.shape[0] + 1, (rows, 1), generator=generator)
        tokens = (words.int() + 1).clamp(max=self.vocabulary - 1)
        return torch.where(torch.arange(self.shape[0]) < ends, tokens, 0).int()

    def _target(self, task: Task, inputs: Tensor, generator: torch.Generator) -> Tensor:
        rows = len(inputs)
        if task.metrics[0] in ("miou", "abs_err", "angle_mean"):
            sides = self.shape[1:]
            if task.loss == "cross_entropy":
                return torch.randint(task.outputs, (rows, *sides), generator=generator)
            return torch.rand(rows, task.outputs, *sides, generator=generator)
        score = inputs.flatten(1).float()
        score = score @ torch.randn(score.shape[1], max(2, task.outputs), generator=generator)
        if task.loss == "cross_entropy":
            return score.argmax(1)
        return score if task.outputs > 1 else score[:, 0] / score[:, 0].std()


def prepared(problem: Problem, method: str, device: str, *, ahead: bool = False, **training: Any) -> Trial:
    """A session of this method (a balancer) at its start, and its batches; `ahead`: from the host, by threads."""
    architecture, encoder = problem.architecture, problem.encoder
    options = {"weights": [1.0] * len(problem.tasks)} if method == "static" else {}
    parts = Parts(
        architecture=components.build("architectures", *architecture),
        balancer=components.build("balancers", method, options),
        objective=None,
        encoder=components.build("encoders", *encoder),
        dropout=0.0,
        training=TrainingSpec(batch_size=problem.batch, **training),
    )
    named = dict.fromkeys(("experiment", "dataset", "data", "method", "fingerprint"), "drill")
    run = Run.of_parts(parts, **named, seed=0, spec={"dataset": {}, **parts.plain()})
    place, suite = torch.device(device), problem.suite
    dtype = getattr(torch, parts.training.dtype)
    splits = {"train": problem.data()}
    host = HostReader("memory", splits, place, dtype, in_memory=True)
    reader: Reader = host if ahead else DeviceReader(splits, place, dtype)
    batches = Batches(reader, suite, device=place, dtype=dtype, workers=Workers())
    phase = parts.architecture.phases()[0]
    session = begin(run, suite, phase, None, batches, device=place, workers=Workers())
    session.model.train()
    return Trial(session, batches, place)


@dataclass
class Trial:
    session: Session
    batches: Batches
    device: torch.device
    _steps: Iterator[Any] = field(default_factory=lambda: iter(()))
    _epoch: int = 0

    def step(self) -> None:
        """The next step of a run."""
        updaters, parts = self.session.updaters, next(self._steps, None)
        if parts is None:
            self._epoch += 1
            torch.manual_seed(self._epoch)
            wanted = zip(*(updater.steps(self._epoch) for updater in updaters), strict=True)
            self._steps = self.batches.steps(wanted, self._epoch)
            parts = next(self._steps)
        others = {updater.turn.name: part.micros for updater, part in zip(updaters, parts, strict=True)}
        for updater, part in zip(updaters, parts, strict=True):
            self.session.step(updater, part.micros, part.query, others)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self) -> float:
        self.wait()
        started = time.perf_counter()
        self.step()
        self.wait()
        return time.perf_counter() - started

    def values(self) -> Tensor:
        """All parameters and statistics as one vector, float64 on the host."""
        found = [value.detach().double().cpu().flatten() for value in self.session.model.state_dict().values()]
        return torch.cat(found)


class Drill:
    """What is measured, and the tables of it."""

    def __init__(self, device: str, small: bool, minutes: float) -> None:
        self.device, self.small = device, small
        self.until = time.monotonic() + 60 * minutes
        self.cuda = torch.device(device).type == "cuda"
        self.wrong: list[str] = []
        self.lines: list[str] = []
        self.images = _has_torchvision()

    def say(self, line: str = "") -> None:
        self.lines.append(line)
        print(line, flush=True)

    def table(self, title: str, *columns: str) -> None:
        self.say(f"\n## {title}\n")
        self.say(f"| {' | '.join(columns)} |")
        self.say(f"|{' --- |' * len(columns)}")

    def row(self, *cells: Any) -> None:
        self.say(f"| {' | '.join(_text(cell) for cell in cells)} |")

    def late(self, what: str) -> bool:
        """Whether there is no time left for it; says so."""
        if time.monotonic() < self.until:
            return False
        self.say(f"\nNo time left for {what}.")
        return True

    # -- correctness -----------------------------------------------------------------------------------------------

    def correctness(self) -> None:
        self.table("Correctness against the host", "what", "method", "float64 off by", "float32 off by", "host", "")
        mixed = ((*CLASSES, 3), (*CLASSES, 3), (*NUMBER, 1))
        vectors = Problem("vectors", "vector", (12,), mixed, ("mlp", {"hidden": [32, 16]}), 24)
        texts = Problem("texts", "tokens", (20,), ((*CLASSES, 3),) * 3, ("textcnn", {}), 16, own=True, vocabulary=60)
        images = Problem("images", "image", (3, 32, 32), ((*CLASSES, 3),) * 2, ("resnet18", _SLIM), 8)
        maps = Problem("maps", "image", (3, 32, 32), _MAPS, ("deeplab_resnet18", _SLIM_MAPS), 4)
        own = _with(vectors, name="vectors, own inputs", own=True)
        pairs = [(problem, name) for problem in (vectors, own) for name in components.names("balancers")]
        for name in ("cross_stitch", "mmoe", "ple", "cgc", "stl", "tomato"):
            architecture = (name, {"topics": 2} if name == "tomato" else {})
            made = _with(vectors, name=f"vectors, {name}", architecture=architecture)
            pairs += [(made, "equal"), (made, "mgda")]
        for name, options in (("textcnn", {"dimensions": 8, "filters": 6}), *_LSTMS):
            made = _with(texts, name=f"texts, {name} {options.get('pooling', '')}".strip(), encoder=(name, options))
            pairs += [(made, "equal"), (made, "mgda")]
        if self.images:
            for name in ("hps", "cross_stitch", "mtan", "rotograd", "nddr_cnn"):
                pairs.append((_with(images, name=f"images, {name}", architecture=(name, {})), "equal"))
            pairs += [(images, "mgda"), (maps, "equal"), (maps, "mgda_ub")]
        else:
            self.say("| (no torchvision: residual networks are left out) | | | | | |")
        for problem, method in pairs:
            if self.late("more of the comparison"):
                return
            self._compare(problem, method)
        for problem in (vectors, texts, *([images] if self.images else [])):
            self._ahead(problem)

    def _ahead(self, problem: Problem) -> None:
        """Batches that threads pin and copy beside the step are those that lie on the device."""
        found = []
        for ahead in (False, True):
            trial = prepared(problem, "equal", self.device, ahead=ahead, dtype="float64", optimizer="sgd", lr=0.02)
            for _ in range(8):
                trial.step()
            found.append(trial.values())
        off = float((found[0] - found[1]).norm() / found[0].norm())
        verdict = "ok" if off <= EXACT else "WRONG"
        if verdict == "WRONG":
            self.wrong.append(f"{problem.name}, batches made ahead")
        self.row(f"{problem.name}, batches made ahead", "equal", off, None, None, verdict)

    def _compare(self, problem: Problem, method: str) -> None:
        def begun(device: str, dtype: str) -> Trial:
            return prepared(problem, method, device, dtype=dtype, optimizer="sgd", lr=0.02)

        def after(trial: Trial) -> Tensor:
            trial.session.model.load_state_dict(start)  # float32 draws other numbers
            for _ in range(4):
                trial.step()
            return trial.values()

        reference = begun("cpu", "float64")
        start = {name: value.clone() for name, value in reference.session.model.state_dict().items()}
        before = reference.values()
        exact = after(reference)
        moved = (exact - before).norm().clamp(min=1e-12)
        fine, coarse, host = (
            float((after(begun(device, dtype)) - exact).norm() / moved)
            for device, dtype in ((self.device, "float64"), (self.device, "float32"), ("cpu", "float32"))
        )
        if method in DRAWN_THERE and self.cuda:
            verdict = "finite, draws differ" if fine < float("inf") and coarse < float("inf") else "WRONG"
        else:
            verdict = "ok" if fine <= EXACT and coarse <= max(10 * host, ROUNDED) else "WRONG"
        if verdict == "WRONG":
            self.wrong.append(f"{problem.name}, {method}")
        self.row(problem.name, method, fine, coarse, host, verdict)

    # -- cost ------------------------------------------------------------------------------------------------------

    def problems(self) -> list[Problem]:
        """What steps are measured on; where torchvision is missing, the first two."""
        s = self.small
        text = ("textcnn", {"dimensions": 8 if s else 300, "filters": 4 if s else 100})
        rows, length, words = (4, 16, 50) if s else (64, 256, 20_000)
        deep = ("mlp", {"hidden": [8, 8] if s else [512, 512]})
        found = [
            Problem("text, T = 4", "tokens", (length,), (FOUR,) * 4, text, rows, True, words, methods=_GRAMIAN),
            Problem("MLP, T = 10", "vector", (64,), (FOUR,) * 10, deep, 8 if s else 256, methods=_GRAMIAN),
        ]
        if self.images:
            side, sides, rates = (16, (16, 16), [1, 2]) if s else (64, (288, 384), [12, 24, 36])
            slim = {"width": 2, "stem": "small"} if s else {}
            net = ("resnet18", slim)
            wide = ("deeplab_resnet50", {**slim, "rates": rates, "head_width": 3 if s else 256})
            shape = (3, side, side)
            found += [
                Problem("ResNet-18, T = 3", "image", shape, (FOUR,) * 3, net, 2 if s else 64, methods=_FEW),
                Problem("DeepLab-ResNet-50, T = 3", "image", (3, *sides), _MAPS, wide, 2 if s else 8, methods=_FEW),
            ]
        return found

    def cost(self) -> None:
        columns = ("method", "ms", "/ equal", "peak MiB", "/ equal", "waits", "synchronise", "to host", "from host")
        self.table("Cost of a step", "problem", *columns)
        for problem in self.problems():
            if self.late(f"{problem.name} and what follows"):
                return
            self._guarded(problem, self._cost_of)
        if not self.images:
            self.say("\nNo torchvision: ResNet-18 and DeepLab-ResNet-50 are left out.")

    def _cost_of(self, problem: Problem) -> None:
        equal = prepared(problem, "equal", self.device)
        memory = self.peak(equal)
        self._time(equal)  # libraries choose their kernels on first use
        for method in ("equal", *problem.methods[: 3 if self.small else None]):
            if self.late(f"more methods on {problem.name}"):
                return
            trial = prepared(problem, method, self.device)
            peak = self.peak(trial)
            for _ in range(2):
                trial.step()
            pairs = []
            while len(pairs) < (2 if self.small else 15):
                first, second = (trial, equal) if len(pairs) % 2 else (equal, trial)
                times = {id(first): first.seconds()}
                times[id(second)] = second.seconds()
                pairs.append((times[id(trial)], times[id(trial)] / times[id(equal)]))
            took, ratio = (statistics.median(column) for column in zip(*pairs, strict=True))
            waits = self.waits(trial)
            self.row(problem.name, method, 1e3 * took, ratio, peak, _over(peak, memory), *waits)
            del trial
            self._tidy()

    def peak(self, trial: Trial) -> float | None:
        """MiB that three steps allocate beyond what is there; the first also makes the optimiser's state."""
        if not self.cuda:
            trial.step()
            return None
        self._tidy()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        for _ in range(3):
            trial.step()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - held) / 2**20

    def waits(self, trial: Trial, steps: int = 3) -> tuple[float | None, ...]:
        """Per step: waits as torch counts them; synchronisations, copies to and from the host as the profiler does."""
        if not self.cuda:
            return (None,) * 4
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            for _ in range(steps):
                trial.step()
        torch.cuda.set_sync_debug_mode("default")
        counted = sum("synchronizing CUDA operation" in str(warning.message) for warning in noted)
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=kinds) as profiler:
            for _ in range(steps):
                trial.step()
        events = {event.key: event.count for event in profiler.key_averages()}
        found = [sum(n for key, n in events.items() if key.startswith(start)) for start in _PROFILED]
        return (counted / steps, *(n / steps for n in found))

    # -- mixed precision -------------------------------------------------------------------------------------------

    def precision(self) -> None:
        self.table("Mixed precision", "problem", "method", "amp", "ms", "/ float32", "skipped of", "steps", "finite")
        for problem in self.problems()[1:]:
            if self.late("mixed precision"):
                return
            self._guarded(problem, self._precision_of)

    def _precision_of(self, problem: Problem) -> None:
        for method in ("equal", "mgda", "mgda_ub"):
            base = prepared(problem, method, self.device)
            whole = self._time(base)
            del base
            for amp in ("fp16", "bf16"):
                if self.late(f"{amp} on {problem.name}"):
                    return
                trial = prepared(problem, method, self.device, amp=amp)
                took, steps = self._time(trial), self._taken(trial)
                finite = bool(trial.values().isfinite().all())
                if not finite:
                    self.wrong.append(f"{problem.name}, {method}, {amp}: not finite")
                skipped = trial.session.main.update.skipped
                self.row(problem.name, method, amp, 1e3 * took, took / whole, skipped, steps, "yes" if finite else "NO")
                del trial
                self._tidy()

    def _time(self, trial: Trial) -> float:
        """Median seconds of a step."""
        for _ in range(3):
            trial.step()
        return statistics.median(trial.seconds() for _ in range(3 if self.small else 17))

    @staticmethod
    def _taken(trial: Trial) -> int:
        return trial.session.main.update.count

    # -- networks of cells -----------------------------------------------------------------------------------------

    def cells(self) -> None:
        self.table("Cells", "network", "batch", "amp", "channels last", "ms", "images/s", "peak MiB", "finite")
        s = self.small
        search = {"search_cells": 2 if s else 8, "search_channels": 2 if s else 16}
        size = {"cells": 2 if s else 20, "channels": 2 if s else 36, "cutout": 2 if s else 16}
        shape, kinds = (3, 8 if s else 32, 8 if s else 32), ((*CLASSES, 10),)
        trained = Problem("trained", "image", shape, kinds, ("darts_cells", size), 4 if s else 96)
        trained = _with(trained, architecture=("cell_network", {"auxiliary": 0.0 if s else 0.4}))
        sought = _with(trained, name="search, darts", batch=4 if s else 64, architecture=("darts", search))
        shares = {**search, "ood": False, "parameter_unit": None, "flops_unit": None, "target_parameters": 0.4}
        both = _with(sought, name="search, e2rnas without other images", architecture=("e2rnas", shares))
        for problem, method in ((trained, "equal"), (sought, "equal"), (both, "mgda")):
            for amp, last in (("off", False), ("off", True), ("bf16", False), ("bf16", True)):
                if self.late("more networks of cells"):
                    return
                self._guarded(problem, partial(self._cells_of, method=method, amp=amp, channels_last=last))

    def _cells_of(self, problem: Problem, method: str, amp: str, channels_last: bool) -> None:
        trial = prepared(problem, method, self.device, amp=amp, channels_last=channels_last)
        peak, took = self.peak(trial), self._time(trial)
        finite = bool(trial.values().isfinite().all())
        if not finite:
            self.wrong.append(f"{problem.name}, {amp}: not finite")
        images = sum(problem.batch for _ in trial.session.updaters) / took
        last = "yes" if channels_last else "no"
        self.row(problem.name, problem.batch, amp, last, 1e3 * took, images, peak, "yes" if finite else "NO")
        del trial
        self._tidy()

    def learners(self) -> None:
        self.table("Learners", "method", "balancer", "transitions a task", "ms", "updates/s", "peak MiB", "finite")
        tasks, size = 2 if self.small else 10, 8 if self.small else 400
        told = Simulated(
            version="any",
            reward_version="v2",
            positions="random",
            horizon=500,
            tasks=tuple(f"t{index}" for index in range(tasks)),
            task_id=True,
            mean=(0.0,) * OBSERVATIONS,
            std=(1.0,) * OBSERVATIONS,
            episodes={},
            seed=0,
        )
        kinds = (("mse", "mse", ACTIONS),) * tasks
        encoder: Named = ("mlp", {"hidden": [size, size]})
        extras = {EXTRA: told.as_extra()}
        kinds_of_sharing = (
            ("sac, heads", "sac", {}),
            ("sac, none", "sac", {"sharing": "none"}),
            ("soft_modules", "soft_modules", {"width": size}),
        )
        for what, name, options in kinds_of_sharing:
            for balancer in ("equal", "pcgrad", "cagrad"):
                if self.late("more learners"):
                    return
                problem = Problem(name, "vector", (told.inputs,), kinds, encoder, 1, own=True, extras=extras)
                problem = _with(problem, architecture=(name, {**options, "replay_batch": 128}))
                self._guarded(problem, partial(self._learner, balancer=balancer, what=what))

    def _learner(self, problem: Problem, balancer: str, what: str) -> None:
        trial = prepared(problem, balancer, self.device)
        model, rows = trial.session.model, 2000
        assert isinstance(model, SACModule)
        sizes = ((OBSERVATIONS,), (ACTIONS,), (), (OBSERVATIONS,))
        generator = torch.Generator().manual_seed(1)
        model.replay.add(
            Transitions(*(torch.rand(len(problem.tasks), rows, *each, generator=generator) for each in sizes))
        )
        peak, took = self.peak(trial), self._time(trial)
        finite = bool(trial.values().isfinite().all())
        if not finite:
            self.wrong.append(f"{what}, {balancer}: not finite")
        self.row(what, balancer, 128, 1e3 * took, 1 / took, peak, "yes" if finite else "NO")
        del trial
        self._tidy()

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _guarded(self, problem: Problem, measure: Callable[[Problem], None]) -> None:
        """With a smaller batch where the memory does not suffice."""
        while True:
            try:
                return measure(problem)
            except torch.OutOfMemoryError:
                if problem.batch == 1:
                    return self.say(f"\n{problem.name} does not fit into the memory.")
                problem = _with(problem, batch=problem.batch // 2)
                self.say(f"\nOut of memory: {problem.name} with batches of {problem.batch}.\n")
            self._tidy()

    def _tidy(self) -> None:
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()


_SLIM = {"width": 4, "stem": "small"}
_SLIM_MAPS = {**_SLIM, "head_width": 4, "rates": [1, 2]}
_MAPS = (("cross_entropy", "miou", 13), ("l1", "abs_err", 1), ("cosine", "angle_mean", 3))
_LSTMS: tuple[Named, ...] = tuple(
    (name, {"dimensions": 8, "hidden": 6, "pooling": pooling})
    for name in ("lstm", "bilstm")
    for pooling in ("last", "mean")
)
_GRAMIAN = (
    "mgda", "mgda_ub", "pcgrad", "cagrad", "getmtl", "imtl_g", "aligned_mtl", "upgrad", "nash_mtl", "fairgrad",
    "gradvac", "gradnorm", "sdmgrad", "graddrop", "moco", "meta_weighting", "uncertainty", "famo",
)  # fmt: skip
_FEW = ("mgda", "mgda_ub", "pcgrad", "cagrad", "getmtl", "graddrop", "famo")
_PROFILED = ("cudaStreamSynchronize", "Memcpy DtoH", "Memcpy HtoD")


def _with(problem: Problem, **changes: Any) -> Problem:
    return replace(problem, **changes)


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _text(cell: Any) -> str:
    if cell is None:
        return "–"
    if not isinstance(cell, float):
        return str(cell)
    if cell and abs(cell) < 1e-2:
        return f"{cell:.0e}"
    return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.2f}"


def _has_torchvision() -> bool:
    return importlib.util.find_spec("torchvision") is not None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny networks and few steps: does the drill work?")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--output", type=Path, help="write the tables to this file, too")


QUICK = {"device": "cpu", "small": True}


def run(options: argparse.Namespace) -> bool:
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        print("No GPU here: nothing is measured (--device cpu --small tries the drill itself).")
        return True
    # Float32 means float32: what is compared shall differ by rounding alone.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if options.device == "cpu":
        torch.set_num_threads(1)
    started = time.monotonic()
    drill = Drill(options.device, options.small, options.minutes)
    name = torch.cuda.get_device_name() if drill.cuda else "the CPU, as a trial of the drill"
    drill.say(f"# mtlscale on {name}\n\nPython {sys.version.split()[0]}, torch {torch.__version__}.")
    for part in (drill.correctness, drill.cost, drill.precision, drill.cells, drill.learners):
        part()
    verdict = "All as on the host." if not drill.wrong else f"WRONG: {'; '.join(drill.wrong)}."
    drill.say(f"\n{verdict} {(time.monotonic() - started) / 60:.1f} minutes.")
    if options.output is not None:
        options.output.write_text("\n".join(drill.lines) + "\n", encoding="utf-8")
    return not drill.wrong
