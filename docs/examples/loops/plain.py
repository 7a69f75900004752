"""A training loop of one's own with GetMTL: two tasks on one input."""

import torch
from torch import nn

import mtlscale

torch.manual_seed(0)
inputs, angle = torch.randn(256, 8), torch.linspace(0, 3, 8)
targets = [inputs @ angle.sin(), inputs @ angle.cos()]

trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=1e-2)
balancer = mtlscale.TaskBalancer("getmtl", shared=trunk, heads=heads)

for step in range(100):
    features = trunk(inputs)
    losses = [nn.functional.mse_loss(head(features)[:, 0], y) for head, y in zip(heads, targets, strict=True)]

    optimizer.zero_grad()
    result = balancer.backward(losses, features=features)
    optimizer.step()
    if step in (0, 99):
        print(f"step {step}: losses {[round(loss, 3) for loss in result.losses.tolist()]}")
