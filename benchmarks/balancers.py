"""What a balancer costs: step time over equal weighting and peak memory, beside TorchJD in the same run.

    python benchmarks/balancers.py                      # all three problems, every balancer
    python benchmarks/balancers.py --problem own4 --balancers mgda,pcgrad,cagrad,getmtl
    python benchmarks/balancers.py --problem grid --balancers mgda,cagrad,getmtl      # many MLPs, one line each
    python benchmarks/balancers.py --problem mlp:10x64x784x512 --balancers mgda       # one of them, whole table

Problems: `own4`, `own14`: 4 or 14 tasks with inputs of their own, TextCNN (20,000 x 300 embedding, 3 x 100 filters, 256
tokens); `one10`, `one10wide`: 10 tasks on one input, MLPs of 2 x 64 and 2 x 512 units with batches of 64 and 256;
`resnet3`: 3 tasks on one input, ResNet-18 at 64 x 64; `mlp:TxBxIxW`: T tasks on one input of I numbers, batches of B,
an MLP of 2 x W units; `grid`: MLPs of 64 to 1,024 units, batches of 16 to 256, 3, 10 and 40 tasks; `wide`: its first
three.

"one backward each" is the same step written down by hand as papers and libraries do it: the heads in one pass, one
backward pass per task through the trunk, the Gramian of the gradients, our balancer's weights from it, Adam. "LibMTL's
loop" does whole backward passes, losses to inputs, task by task, keeps the gradients in one matrix [T, P], and goes
back once more with the weights.

A step is everything from the batch on the device to updated parameters (Adam). Steps of a balancer and of equal
weighting alternate, so that what else the machine does hits both; the figure is the median of the ratios. On the CPU it
is the time of the process's one thread, which equals the wall clock on an idle machine. TorchJD's first column is its
default (autojac, all rows in parallel; blank where it fails), the second the fastest of that, one row at a time, and
autogram. Peak memory is that of a process of its own which builds the network and does three steps, less what its
libraries hold.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from mtlscale.architectures import MultiTaskModule, Turn
from mtlscale.balancing import balance
from mtlscale.config import Task, TaskSuite, TrainingSpec
from mtlscale.config.registry import components
from mtlscale.data import Batch, EpochSampler, Samples
from mtlscale.encoders import EncoderModule
from mtlscale.torchvision_ops import declare
from mtlscale.training import Session, SupervisedSource, Update, Updater, partition_of, sparse_embeddings

OPTIMIZER = "adam"
SEVEN = ("mgda", "pcgrad", "cagrad", "getmtl")
WIDE = [f"mlp:10x{batch}x784x512" for batch in (32, 64, 256)]
SQUARE = [f"mlp:{t}x{b}x{w}x{w}" for w in (64, 256, 1024) for b in (16, 64, 256) for t in (3, 10, 40)]
GRIDS = {"wide": WIDE, "grid": [*WIDE, *SQUARE]}
TORCHJD = {
    "mgda": "MGDA",
    "pcgrad": "PCGrad",
    "imtl_g": "IMTLG",
    "aligned_mtl": "AlignedMTL",
    "upgrad": "UPGrad",
    "graddrop": "GradDrop",
    "gradvac": "GradVac",
    "fairgrad": "FairGrad",
    "equal": "Mean",
}


class ResNet18(EncoderModule):
    features = 512

    def __init__(self) -> None:
        super().__init__()
        declare()
        from torchvision.models import resnet18

        self.body = resnet18(weights=None)
        self.body.fc = nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(inputs)


def suite_of(tasks: int, own_inputs: bool, kind: str, shape: tuple[int, ...], vocabulary: int | None) -> TaskSuite:
    return TaskSuite(
        name="benchmark",
        tasks=tuple(Task(name=f"t{i}", loss="cross_entropy", outputs=4, metrics=("accuracy",)) for i in range(tasks)),
        inputs="per_task" if own_inputs else "shared",
        input_kind=kind,  # type: ignore[arg-type]
        input_shape=shape,
        vocabulary_size=vocabulary,
    )


def zipf_tokens(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """Token ids whose frequencies fall like those of words."""
    ranks = torch.exp(torch.rand(rows, length, generator=generator) * torch.log(torch.tensor(float(vocabulary))))
    return (ranks.long() + 1).clamp(max=vocabulary - 1)


def problem(name: str, device: str) -> tuple[TaskSuite, MultiTaskModule, list[Batch]]:
    """A suite, a fresh HPS network and one step's batches."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    if name.startswith("mlp:"):
        tasks, rows, size, width = (int(number) for number in name[4:].split("x"))
        suite = suite_of(tasks, False, "vector", (size,), None)
        encoder = components.build("encoders", "mlp", {"hidden": [width, width]}).build(suite)
        inputs = {"all": torch.randn(rows, size, generator=generator)}
    elif name in ("own4", "own14"):
        tasks, rows, vocabulary = int(name[3:]), 64, 20_000
        suite = suite_of(tasks, True, "tokens", (256,), vocabulary)
        options = {"dimensions": 300, "filters": 100, "widths": [3, 5, 7]}
        encoder = components.build("encoders", "textcnn", options).build(suite)
        inputs = {stream: zipf_tokens(rows, 256, vocabulary, generator) for stream in suite.streams}
    elif name in ("one10", "one10wide"):
        tasks, rows, width = (10, 64, 64) if name == "one10" else (10, 256, 512)
        suite = suite_of(tasks, False, "vector", (64,), None)
        encoder = components.build("encoders", "mlp", {"hidden": [width, width]}).build(suite)
        inputs = {"all": torch.randn(rows, 64, generator=generator)}
    else:
        tasks, rows = 3, 16
        suite = suite_of(tasks, False, "image", (3, 64, 64), None)
        encoder = ResNet18()
        inputs = {"all": torch.randn(rows, 3, 64, 64, generator=generator)}
    model = components.build("architectures", "hps").build(suite, lambda: encoder, 0.0).to(device)
    batches = []
    for stream, names in suite.streams.items():
        targets = {task: torch.randint(4, (rows,), generator=generator).to(device) for task in names}
        batches.append(Batch(stream, Samples(inputs[stream].to(device), targets), rows))
    return suite, model, batches


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Or, by --optimizer, SGD with momentum, whose step is a small part of what Adam's takes."""
    if OPTIMIZER == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    return torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)


def our_step(name: str, balancer: str, device: str) -> Callable[[], None]:
    suite, model, batches = problem(name, device)
    options: dict[str, Any] = {"weights": [1.0 / len(suite.tasks)] * len(suite.tasks)} if balancer == "static" else {}
    built = components.build("balancers", balancer, options)
    state = None
    if hasattr(built, "from_data"):
        data = {task: batch.inputs.flatten(1).float() for batch in batches for task in batch.tasks}
        targets = {task: target for batch in batches for task, target in batch.samples.targets.items()}
        state = built.from_data(data, targets)
    sparse_embeddings(model)
    names, settings = [task.name for task in suite.tasks], TrainingSpec()
    update = Update(names, partition_of(model, suite), built, device=torch.device(device), state=state)
    sampler = EpochSampler({batch.stream: batch.total for batch in batches}, 1, 0)
    updater = Updater(Turn(), settings, SupervisedSource(model, suite), update, adam(model), sampler)
    session = Session(model, None, [updater])
    query = [batches] if built.needs == "validation" else None

    def run() -> None:
        session.step(updater, [batches], query)

    return run


def torchjd_steps(name: str, aggregator: str, device: str) -> dict[str, Callable[[], None]]:
    """The ways TorchJD offers to do the same step; those that do not work here are left out."""
    from torchjd import aggregation
    from torchjd.autogram import Engine
    from torchjd.autojac import backward, jac_to_grad, mtl_backward

    def losses_of(model: MultiTaskModule, batches: Sequence[Batch]) -> tuple[list[Tensor], Tensor | None]:
        losses, features = [], None
        for batch in batches:
            outputs = model(batch)
            features = outputs.representation
            losses += [F.cross_entropy(outputs.predictions[t], y) for t, y in batch.samples.targets.items()]
        return losses, features

    def autojac(chunk: int | None) -> Callable[[], None]:
        suite, model, batches = problem(name, device)
        optimizer, combine = adam(model), getattr(aggregation, aggregator)()
        shared = model.shared_parameters()
        heads = [model.task_parameters(task.name) for task in suite.tasks]

        def run() -> None:
            optimizer.zero_grad()
            losses, features = losses_of(model, batches)
            if len(batches) == 1:
                mtl_backward(losses, features=features, parallel_chunk_size=chunk)
            else:
                for loss, head in zip(losses, heads, strict=True):
                    for p, g in zip(head, torch.autograd.grad(loss, head, retain_graph=True), strict=True):
                        p.grad = g
                backward(losses, inputs=shared, parallel_chunk_size=chunk)
            jac_to_grad(shared, combine)
            optimizer.step()

        return run

    def autogram() -> Callable[[], None]:
        _, model, batches = problem(name, device)
        optimizer = adam(model)
        weighting = getattr(aggregation, f"{aggregator}Weighting")()
        engine = Engine(model.encoder, batch_dim=None)  # type: ignore[arg-type]

        def run() -> None:
            optimizer.zero_grad()
            losses, _ = losses_of(model, batches)
            stacked = torch.stack(losses)
            weights = weighting(engine.compute_gramian(stacked))
            stacked.backward(weights)
            optimizer.step()

        return run

    found = {}
    for way, make in (("autojac", lambda: autojac(None)), ("one row", lambda: autojac(1)), ("autogram", autogram)):
        try:
            run = make()
            run()
            found[way] = run
        except Exception:  # not every aggregator and network is supported in every way
            continue
    return found


def seconds(run: Callable[[], None], device: str) -> float:
    if device == "cpu":
        started = time.process_time()
        run()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def compare(run: Callable[[], None], reference: Callable[[], None], repeats: int, device: str) -> tuple[float, float]:
    """(median of the ratios, median seconds of the reference)."""
    for warm in (run, reference):
        warm()
        warm()
    ratios, base = [], []
    for turn in range(repeats):
        first, second = (run, reference) if turn % 2 else (reference, run)
        times = {first: seconds(first, device)}
        times[second] = seconds(second, device)
        ratios.append(times[run] / times[reference])
        base.append(times[reference])
    return statistics.median(ratios), statistics.median(base)


def floor_step(name: str, device: str) -> Callable[[], None]:
    """The floor of one-input problems: one forward pass, T backward passes, Adam's update, and nothing else."""
    suite, model, batches = problem(name, device)
    parameters, optimizer = list(model.parameters()), adam(model)

    def run() -> None:
        outputs = model(batches[0])
        losses = [F.cross_entropy(outputs.predictions[t], y) for t, y in batches[0].samples.targets.items()]
        last = len(suite.tasks) - 1
        for index, loss in enumerate(losses):
            found = torch.autograd.grad(loss, parameters, retain_graph=index < last, allow_unused=True)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return run


def by_hand(name: str, balancer: str, device: str, *, whole: bool = False) -> Callable[[], None]:
    """A step of a balancer of Gramians on one input with one backward pass per task, and nothing of our engine but the
    balancer's own function. whole: LibMTL's loop."""
    suite, model, batches = problem(name, device)
    optimizer = adam(model)
    shared, own = model.shared_parameters(), [model.task_parameters(task.name) for task in suite.tasks]
    heads, targets = [p for group in own for p in group], batches[0].samples.targets
    built = components.build("balancers", balancer)
    state, everyone = built.init(len(suite.tasks)), torch.ones(len(suite.tasks), dtype=torch.bool)

    def weights_of(losses: Sequence[Tensor], k: Tensor) -> Tensor:
        nonlocal state
        values = torch.stack([loss.detach() for loss in losses]).double()
        weights, state = balance(built, values, k.double(), state, everyone)
        return weights.float()

    def trunk_only() -> None:
        outputs = model(batches[0])
        losses = [F.cross_entropy(outputs.predictions[task], y) for task, y in targets.items()]
        at_z = torch.autograd.grad(sum(losses), [*outputs.branches.values(), *heads], retain_graph=True)
        for parameter, gradient in zip(heads, at_z[len(losses) :], strict=True):
            parameter.grad = gradient
        last, z = len(losses) - 1, outputs.representation
        rows = [torch.autograd.grad(z, shared, at_z[i], retain_graph=i < last) for i in range(len(losses))]
        columns = [torch.stack(column).flatten(1) for column in zip(*rows, strict=True)]
        weights = weights_of(losses, sum(column @ column.T for column in columns))
        for parameter, column in zip(shared, columns, strict=True):
            parameter.grad = (weights @ column).view_as(parameter)
        optimizer.step()

    def libmtl() -> None:
        outputs = model(batches[0])
        losses = [F.cross_entropy(outputs.predictions[task], y) for task, y in targets.items()]
        matrix = torch.zeros(len(losses), sum(p.numel() for p in shared), device=device)
        for row, loss in zip(matrix, losses, strict=True):
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            row.copy_(torch.cat([p.grad.flatten() for p in shared]))
        weights = weights_of(losses, matrix @ matrix.T)
        optimizer.zero_grad()
        sum(weight * loss for weight, loss in zip(weights.tolist(), losses, strict=True)).backward()
        optimizer.step()

    return libmtl if whole else trunk_only


def grid(problems: Sequence[str], balancers: Sequence[str], repeats: int, device: str, *, torchjd: bool) -> None:
    """A line for each MLP and balancer: steps over those by hand, and over equal weighting."""
    table = Table("problem", "balancer", "/ one backward each", "/ LibMTL's loop", "/ TorchJD best", "/ equal")
    worst = 0.0
    for name in problems:
        for balancer in balancers:
            run = our_step(name, balancer, device)
            turns = max(5, repeats)
            ratio, _ = compare(run, by_hand(name, balancer, device), turns, device)
            loop, _ = compare(run, by_hand(name, balancer, device, whole=True), max(3, turns // 3), device)
            equal, _ = compare(run, our_step(name, "equal", device), turns, device)
            best = float("nan")
            if torchjd and balancer in TORCHJD:
                ways = torchjd_steps(name, TORCHJD[balancer], device)
                best = max((compare(run, step, 3, device)[0] for step in ways.values()), default=float("nan"))
            worst = max(worst, ratio)
            cells = [f"{cell:.2f}" if cell == cell else "" for cell in (ratio, loop, best, equal)]
            table.add_row(name, balancer, *cells)
            print(name, balancer, *cells, flush=True)
    Console(width=110).print(table)
    print(f"largest ratio to one backward pass per task: {worst:.2f}")


def peak_mib(name: str, balancer: str, device: str) -> float:
    """Peak memory of three steps over what the process held before them."""
    if device == "cuda":
        run = our_step(name, balancer, device)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        for _ in range(3):
            run()
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    done = subprocess.run(
        [sys.executable, __file__, "--problem", name, "--memory-of", balancer], capture_output=True, text=True
    )
    return float(json.loads(done.stdout)) if done.returncode == 0 else float("nan")


def measure_memory(name: str, balancer: str) -> None:
    """Print the peak of this process from here on, in MiB over what it holds now (Linux)."""
    problem("one10", "cpu")  # libraries that load on first use
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    run = our_step(name, balancer, "cpu")
    for _ in range(3):
        run()
    print(resident("VmHWM") - before)


def resident(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="own4,own14,one10,one10wide,resnet3", help="comma-separated")
    parser.add_argument("--balancers", default="", help="comma-separated; default: all")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--no-torchjd", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    global OPTIMIZER
    OPTIMIZER = arguments.optimizer
    torch.set_num_threads(1)
    if arguments.memory_of:
        measure_memory(arguments.problem, arguments.memory_of)
        return
    console = Console(width=110)
    chosen = arguments.balancers.split(",") if arguments.balancers else components.names("balancers")
    if arguments.problem in GRIDS:
        grid(GRIDS[arguments.problem], chosen, arguments.repeats, arguments.device, torchjd=not arguments.no_torchjd)
        return
    for name in arguments.problem.split(","):
        table = Table("balancer", "needs", "step / equal", "TorchJD", "TorchJD best", "ours / TorchJD", "/ best")
        table.add_column("peak MiB")
        table.add_column("/ equal")
        equal = our_step(name, "equal", arguments.device)
        base_memory = float("nan") if arguments.no_memory else peak_mib(name, "equal", arguments.device)
        repeats = arguments.repeats * (10 if name == "one10" else 1)
        base = 0.0
        for balancer in ["equal", *(b for b in chosen if b != "equal")]:
            needs = components.component("balancers", balancer).needs
            run = our_step(name, balancer, arguments.device)
            ratio, base = compare(run, equal, repeats, arguments.device)
            default = best = float("nan")
            if balancer in TORCHJD and not arguments.no_torchjd:
                ways = torchjd_steps(name, TORCHJD[balancer], arguments.device)
                found = {way: compare(s, equal, max(5, repeats // 3), arguments.device)[0] for way, s in ways.items()}
                default, best = found.get("autojac", float("nan")), min(found.values(), default=float("nan"))
            memory = float("nan") if arguments.no_memory else peak_mib(name, balancer, arguments.device)
            cells = [ratio, default, best, ratio / default, ratio / best, memory, memory / base_memory]
            texts = [f"{cell:.0f}" if cell >= 1000 else f"{cell:.2f}" for cell in cells]
            table.add_row(balancer, needs, *("" if text == "nan" else text for text in texts))
        table.title = f"{name}: a step of equal weighting takes {base * 1e3:.1f} ms ({arguments.device})"
        console.print(table)
        if not name.startswith("own"):
            ratio, _ = compare(floor_step(name, arguments.device), equal, repeats, arguments.device)
            console.print(f"floor: one forward pass, T backward passes and Adam take {ratio:.2f} x equal weighting\n")


if __name__ == "__main__":
    main()
