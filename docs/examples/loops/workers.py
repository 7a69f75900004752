"""Two workers, each with half of a batch, end where one worker with the whole batch does."""

import sys
import tempfile

import torch
from torch import multiprocessing, nn

import mtlscale


def train(rank, workers, folder, file):
    if workers > 1:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=workers)
    torch.manual_seed(0)  # the same start on every worker
    inputs, angle = torch.randn(64, 8).double(), torch.linspace(0, 3, 8).double()
    targets = [inputs @ angle.sin(), inputs @ angle.cos()]
    mine = torch.arange(64).chunk(workers)[rank]

    trunk, heads = nn.Linear(8, 16).double(), nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)]).double()
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)
    balancer = mtlscale.TaskBalancer("pcgrad", shared=trunk, heads=heads)
    for _ in range(5):
        features = trunk(inputs[mine]).relu()
        losses = [nn.functional.mse_loss(head(features)[:, 0], y[mine]) for head, y in zip(heads, targets, strict=True)]
        optimizer.zero_grad()
        balancer.backward(losses)
        optimizer.step()
    torch.save(trunk.weight.detach(), f"{folder}/{file}{rank}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(0, 1, folder, "one")
        context = multiprocessing.get_context("spawn")
        both = [context.Process(target=train, args=(rank, 2, folder, "both")) for rank in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join()
        weights = [torch.load(f"{folder}/{name}") for name in ("one0", "both0", "both1")]
        apart = max(float((weight - weights[0]).norm() / weights[0].norm()) for weight in weights)
        print(f"relative distance {apart:.0e}")
        sys.exit(apart > 1e-9)
