"""What a balancer costs: step time over equal weighting and peak memory, beside TorchJD in the same run.

    python benchmarks/run.py balancers                      # all three problems, every balancer
    python benchmarks/run.py balancers --problem own4 --balancers mgda,pcgrad,cagrad,getmtl
    python benchmarks/run.py balancers --problem grid --balancers mgda,cagrad,getmtl      # many MLPs, one line each
    python benchmarks/run.py balancers --problem mlp:10x64x784x512 --balancers mgda       # one of them, whole table

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
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from harness import Sheet, Step, apart, in_turns, peak_mib, ratio, say, spent
from torch import Tensor, nn
from torch.nn import functional as F

from mtlscale import solvers
from mtlscale.architectures import MultiTaskModule, Turn
from mtlscale.balancing import balance
from mtlscale.config import Task, TaskSuite, TrainingSpec
from mtlscale.config.registry import components
from mtlscale.data import Batch, EpochSampler, Samples
from mtlscale.encoders import EncoderModule
from mtlscale.torchvision_ops import declare
from mtlscale.training import Session, SupervisedSource, Update, Updater, partition_of, sparse_embeddings

OPTIMIZER = "adam"
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


def our_step(name: str, balancer: str, device: str) -> Step:
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


@dataclass
class Loop:
    """A training loop's parts. forward: the features, one or one per task, and the tasks' losses."""

    forward: Callable[[], tuple[list[Tensor], list[Tensor]]]
    trunk: nn.Module
    heads: list[list[nn.Parameter]]
    shared: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    own_inputs: bool


def torchjd_step(loop: Loop, aggregator: str, way: str) -> Step:
    """A step in one of TorchJD's ways: autojac, one row at a time, autogram."""
    from torchjd import aggregation
    from torchjd.autogram import Engine
    from torchjd.autojac import backward, jac_to_grad, mtl_backward

    chunk = 1 if way == "one row" else None

    def autojac() -> None:
        loop.optimizer.zero_grad()
        features, losses = loop.forward()
        if loop.own_inputs:
            for loss, head in zip(losses, loop.heads, strict=True):
                loss.backward(retain_graph=True, inputs=head)
            backward(losses, inputs=loop.shared, parallel_chunk_size=chunk)
        else:
            mtl_backward(losses, features=features[0], parallel_chunk_size=chunk)
        jac_to_grad(loop.shared, combine)
        loop.optimizer.step()

    def autogram() -> None:
        loop.optimizer.zero_grad()
        _, losses = loop.forward()
        stacked = torch.stack(losses)
        stacked.backward(weighting(engine.compute_gramian(stacked)))
        loop.optimizer.step()

    if way == "autogram":
        weighting, engine = getattr(aggregation, f"{aggregator}Weighting")(), Engine(loop.trunk, batch_dim=None)
        return autogram
    combine = getattr(aggregation, aggregator)()
    return autojac


def ways_that_work(makers: dict[str, Callable[[], Step]], what: str) -> dict[str, Step]:
    """The steps that can be made and done; of the others a line says why not."""
    steps = {}
    for way, make in makers.items():
        try:
            step = make()
            step()
            steps[way] = step
        except Exception as error:  # not every method and network is supported in every way
            reason = f"{type(error).__name__}: {str(error)[:100]}"
            print(f"{what}: {way} does not work: {reason}", file=sys.stderr, flush=True)
    return steps


def torchjd_steps(make: Callable[[], Loop], aggregator: str, what: str) -> dict[str, Step]:
    """The ways of TorchJD to do the step; those that do not work are left out."""
    ways = ("autojac", "one row", "autogram")
    return ways_that_work({way: lambda way=way: torchjd_step(make(), aggregator, way) for way in ways}, what)  # type: ignore[misc]


def loop_of(name: str, device: str) -> Loop:
    suite, model, batches = problem(name, device)

    def forward() -> tuple[list[Tensor], list[Tensor]]:
        losses, features = [], []
        for batch in batches:
            outputs = model(batch)
            features.append(outputs.representation)
            losses += [F.cross_entropy(outputs.predictions[t], y) for t, y in batch.samples.targets.items()]
        return features, losses

    heads = [list(model.task_parameters(task.name)) for task in suite.tasks]
    return Loop(forward, model.encoder, heads, model.shared_parameters(), adam(model), len(batches) > 1)  # type: ignore[arg-type]


def compare(run: Step, reference: Step, turns: int, device: str) -> tuple[float, float]:
    """(median of the ratios, median seconds of the reference)."""
    times = in_turns({"run": run, "reference": reference}, turns, warm=2, clock=lambda step: spent(step, device))
    return ratio(times, "run", "reference"), statistics.median(times["reference"])


def floor_step(name: str, device: str) -> Step:
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


def by_hand(name: str, balancer: str, device: str, *, whole: bool = False) -> Step:
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


def load_solvers() -> None:
    """Import what solvers import when first used, scipy with them: libraries, not what a step holds."""
    for name in solvers.__all__:
        getattr(solvers, name)


def peak_of(name: str, balancer: str) -> float:
    """In a process of its own."""
    torch.set_num_threads(1)
    load_solvers()
    return peak_mib(lambda: problem("one10", "cpu"), lambda: our_step(name, balancer, "cpu"))


def peak(name: str, balancer: str, device: str) -> float:
    """MiB that a balancer's step needs beyond what libraries hold."""
    if device == "cpu":
        return float(apart(peak_of, name, balancer))
    run = our_step(name, balancer, device)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        run()
    return (torch.cuda.max_memory_allocated() - held) / 2**20


def grid(problems: Sequence[str], balancers: Sequence[str], options: argparse.Namespace) -> None:
    """A line for each MLP and balancer: steps over those by hand, and over equal weighting."""
    device, turns = options.device, max(5, options.repeats)
    sheet = Sheet("steps over", "problem", "balancer", "one backward each", "LibMTL's loop", "TorchJD best", "equal")
    for name in problems:
        for balancer in balancers:
            run = our_step(name, balancer, device)
            by_rows, _ = compare(run, by_hand(name, balancer, device), turns, device)
            loop, _ = compare(run, by_hand(name, balancer, device, whole=True), max(3, turns // 3), device)
            equal, _ = compare(run, our_step(name, "equal", device), turns, device)
            best = None
            if balancer in TORCHJD and not options.no_torchjd:
                ways = torchjd_steps(lambda name=name: loop_of(name, device), TORCHJD[balancer], f"{name} {balancer}")  # type: ignore[misc]
                best = max((compare(run, step, 3, device)[0] for step in ways.values()), default=None)
            sheet.row(name, balancer, by_rows, loop, best, equal)
    sheet.show()
    say(f"largest ratio to one backward pass per task: {max(row[2] for row in sheet.rows):.2f}")


def steps_of(name: str, balancers: Sequence[str], options: argparse.Namespace) -> None:
    """A problem's table: steps of every balancer over those of equal weighting."""
    device, turns = options.device, options.repeats * (10 if name == "one10" else 1)
    columns = ("needs", "step / equal", "TorchJD", "TorchJD best", "ours / TorchJD", "/ best", "peak MiB", "/ equal")
    sheet = Sheet(name, "balancer", *columns)
    equal, base = our_step(name, "equal", device), 0.0
    equal_mib = None if options.no_memory else peak(name, "equal", device)
    for balancer in ["equal", *(each for each in balancers if each != "equal")]:
        over, base = compare(our_step(name, balancer, device), equal, turns, device)
        default = best = mib = None
        if balancer in TORCHJD and not options.no_torchjd:
            ways = torchjd_steps(lambda: loop_of(name, device), TORCHJD[balancer], f"{name} {balancer}")
            found = {way: compare(step, equal, max(5, turns // 3), device)[0] for way, step in ways.items()}
            default, best = found.get("autojac"), min(found.values(), default=None)
        if equal_mib is not None:
            mib = equal_mib if balancer == "equal" else peak(name, balancer, device)
        against = [over / theirs if theirs else None for theirs in (default, best)]
        needs = components.component("balancers", balancer).needs
        sheet.row(balancer, needs, over, default, best, *against, mib, mib / equal_mib if mib and equal_mib else None)
    sheet.title = f"{name}: a step of equal weighting takes {base * 1e3:.1f} ms ({device})"
    sheet.show()
    if not name.startswith("own"):
        over, _ = compare(floor_step(name, device), equal, turns, device)
        say(f"floor: one forward pass, T backward passes and Adam take {over:.2f} x equal weighting\n")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", default="own4,own14,one10,one10wide,resnet3", help="comma-separated")
    parser.add_argument("--balancers", default="", help="comma-separated; default: all")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--no-torchjd", action="store_true")
    parser.add_argument("--no-memory", action="store_true")


QUICK = {"problem": "one10", "balancers": "equal,mgda", "repeats": 1}


def run(options: argparse.Namespace) -> None:
    global OPTIMIZER
    OPTIMIZER = options.optimizer
    torch.set_num_threads(1)
    chosen = options.balancers.split(",") if options.balancers else components.names("balancers")
    if options.problem in GRIDS:
        grid(GRIDS[options.problem], chosen, options)
        return
    for name in options.problem.split(","):
        steps_of(name, chosen, options)
