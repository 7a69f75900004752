"""Mixed precision with a gradient scaler: half precision forward, balanced gradients, steps that overflow skipped."""

import torch
from torch import nn

import mtlscale

torch.manual_seed(0)
inputs, angle = torch.randn(256, 8), torch.linspace(0, 3, 8)
targets = [inputs @ angle.sin(), inputs @ angle.cos()]

trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
heads = nn.ModuleList([nn.Linear(32, 1), nn.Linear(32, 1)])
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)
scaler = torch.amp.GradScaler("cpu")  # "cuda" on a GPU
balancer = mtlscale.TaskBalancer("mgda", shared=trunk, heads=heads, scaler=scaler)

for step in range(50):
    with torch.autocast("cpu", dtype=torch.float16):
        features = trunk(inputs)
        predictions = [head(features)[:, 0] for head in heads]
    losses = [nn.functional.mse_loss(found.float(), y) for found, y in zip(predictions, targets, strict=True)]

    optimizer.zero_grad()
    result = balancer.backward(losses)  # not scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step in (0, 49):
        print(
            f"step {step}: losses {[round(loss, 3) for loss in result.losses.tolist()]}, scale {scaler.get_scale():g}"
        )
