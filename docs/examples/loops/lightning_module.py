"""A Lightning module with GetMTL: two tasks on one input."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mtlscale


class TwoTasks(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)

    def on_fit_start(self) -> None:
        self.balancer = mtlscale.TaskBalancer("getmtl", shared=self.trunk, heads=self.heads)

    def training_step(self, batch: list[torch.Tensor]) -> None:
        inputs, *targets = batch
        features = self.trunk(inputs)
        losses = [nn.functional.mse_loss(head(features)[:, 0], y) for head, y in zip(self.heads, targets, strict=True)]

        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.losses = self.balancer.backward(losses, features=features).losses.tolist()
        optimizer.step()


torch.manual_seed(0)
inputs, angle = torch.randn(256, 8), torch.linspace(0, 3, 8)
data = TensorDataset(inputs, inputs @ angle.sin(), inputs @ angle.cos())

module = TwoTasks()
trainer = lightning.Trainer(
    max_epochs=25, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(module, DataLoader(data, batch_size=64, shuffle=True))
print(f"step {trainer.global_step}: losses {[round(loss, 3) for loss in module.losses]}")
