"""Gradient accumulation: four micro-batches are balanced as one batch. Resumed from a checkpoint halfway."""

import io

import torch
from torch import nn

import mtlscale

torch.manual_seed(0)
inputs, angle = torch.randn(256, 8), torch.linspace(0, 3, 8)
targets = {"sine": inputs @ angle.sin(), "cosine": inputs @ angle.cos()}

trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
heads = nn.ModuleDict({"sine": nn.Linear(32, 1), "cosine": nn.Linear(32, 1)})
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)
balancer = mtlscale.TaskBalancer("dwa", shared=trunk, heads=heads)


def losses_of(rows):
    features = trunk(inputs[rows])
    return {task: nn.functional.mse_loss(head(features)[:, 0], targets[task][rows]) for task, head in heads.items()}


for epoch in range(6):
    *first, last = torch.arange(256).split(64)
    optimizer.zero_grad()
    for rows in first:
        balancer.accumulate(losses_of(rows))
    result = balancer.backward(losses_of(last))
    optimizer.step()
    balancer.end_epoch()  # DWA compares the mean losses of epochs
    print(f"epoch {epoch}: weights {[round(weight, 3) for weight in result.weights.tolist()]}")

    if epoch == 3:  # the balancer's state belongs into a checkpoint, beside the model's and the optimiser's
        file = io.BytesIO()
        torch.save(balancer.state_dict(), file)
        file.seek(0)
        balancer = mtlscale.TaskBalancer("dwa", shared=trunk, heads=heads)
        balancer.load_state_dict(torch.load(file))
