"""What two workers send each other for a step of a balancer of Gramians, and how long it takes them, with the tasks'
gradients and without.

    python benchmarks/messages.py
    python benchmarks/messages.py --problem mlp:10x64x784x512 --balancer cagrad --steps 20

Two processes on this machine, joined by gloo on loopback, one thread each; each has half of the batch. Steps with and
without the tasks' gradients alternate. Bytes are those that one worker sends: a sum of n bytes over k workers costs
each 2 (k - 1) / k n, a gathering of n bytes each (k - 1) n.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from balancers import adam, problem

from mtlscale.architectures import Turn
from mtlscale.config import TrainingSpec
from mtlscale.config.registry import components
from mtlscale.data import Batch, EpochSampler, Samples, Workers
from mtlscale.training import Session, SupervisedSource, Update, Updater, partition_of, sparse_embeddings
from mtlscale.training.gradients import update
from mtlscale.training.gradients.layerwise_gramian import by_layers
from mtlscale.training.gradients.strategies import Draft, GradientStrategy, StepRequest

PROBLEMS = "mlp:10x32x784x512,mlp:10x64x784x512,mlp:10x256x784x512,mlp:40x64x1024x1024,mlp:3x64x256x256"
WAYS = ("with", "without")


def by_gradients(strategy: GradientStrategy, request: StepRequest) -> Draft:
    return strategy.by_gradients(request)


def stepper(name: str, balancer: str, workers: Workers) -> Callable[[], None]:
    """Our step on this worker's half of the batch."""
    suite, model, batches = problem(name, "cpu")
    sparse_embeddings(model)
    built = components.build("balancers", balancer)
    names = [task.name for task in suite.tasks]
    device, partition = torch.device("cpu"), partition_of(model, suite)
    change = Update(names, partition, built, device=device, workers=workers)
    whole = batches[0].samples
    half = slice(workers.rank, None, workers.size)
    part = Samples(whole.inputs[half], {task: target[half] for task, target in whole.targets.items()})
    batch = Batch(batches[0].stream, part, len(whole))
    updater = Updater(
        Turn(), TrainingSpec(), SupervisedSource(model, suite), change, adam(model), EpochSampler({"all": 64}, 1, 0)
    )
    session = Session(model, None, [updater])
    return lambda: session.step(updater, [[batch]], None)


def counted(sent: list[float]) -> None:
    """Add the bytes of every message to `sent`."""
    size, reduce = 2, torch.distributed.all_reduce
    gather = torch.distributed.all_gather_single

    def reducing(tensor: Tensor, *rest: object, **options: object) -> object:
        sent[0] += tensor.nbytes * 2 * (size - 1) / size
        return reduce(tensor, *rest, **options)

    def gathering(found: Tensor, tensor: Tensor, *rest: object, **options: object) -> object:
        sent[0] += tensor.nbytes * (size - 1)
        return gather(found, tensor, *rest, **options)

    torch.distributed.all_reduce, torch.distributed.all_gather_single = reducing, gathering  # type: ignore


def work(rank: int, name: str, balancer: str, steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    sent = [0.0]
    counted(sent)
    run = stepper(name, balancer, Workers(rank, 2))
    sizes: dict[str, float] = {}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(steps + 2):
        for way in WAYS:
            update.by_layers = by_gradients if way == "with" else by_layers
            torch.distributed.barrier()
            sent[0], started = 0.0, time.perf_counter()
            run()
            if turn >= 2:
                seconds[way].append(time.perf_counter() - started)
            sizes[way] = sent[0]
    if rank == 0:
        torch.save({w: (sizes[w], statistics.median(seconds[w])) for w in WAYS}, f"{folder}/found.pt")
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads, torn down while the other still talks, abort now and then


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default=PROBLEMS, help="comma-separated, as in benchmarks/balancers.py")
    parser.add_argument("--balancer", default="mgda")
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    table = Table("problem", "KiB with", "KiB without", "ratio", "ms with", "ms without", "ratio ")
    for name in arguments.problem.split(","):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (name, arguments.balancer, arguments.steps, folder), nprocs=2)
            found = torch.load(f"{folder}/found.pt", weights_only=True)
        (before, slow), (after, fast) = found["with"], found["without"]
        cells = [before / 1024, after / 1024, after / before, slow * 1e3, fast * 1e3, fast / slow]
        table.add_row(name, *(f"{cell:.2f}" if cell < 10 else f"{cell:,.0f}" for cell in cells))
    table.title = f"one worker of two, a step of {arguments.balancer}: with the tasks' gradients, and without"
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
