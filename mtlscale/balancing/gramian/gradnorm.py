"""GradNorm: gradient normalisation."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.config import knob


class GradNorm(GramianBalancer):
    """Weights learned so that weighted gradient norms agree, larger for tasks that train more slowly.

    Source: Chen et al. (ICML 2018), Algorithm 1, on all shared parameters. v = T softmax(a); a descends Σ |G_t - Ḡ
    r_t^α| divided by Ḡ, so that its step does not depend on the gradients' scale. The rates r are those of the losses
    as the tasks define them, without any factor, against the first epoch with a loss above 0; r = 1 until its mean
    exists.
    """

    name: ClassVar[str] = "gradnorm"
    source: ClassVar[str] = "Chen et al., ICML 2018, Algorithm 1"
    cost: ClassVar[str] = "T backwards"
    positive_losses: ClassVar[bool] = True
    # a task waits for its first loss above 0; products of gradients added up in pieces
    results_version: ClassVar[int] = 3
    per_task: ClassVar[tuple[str, ...]] = ("logits", "initial_losses", "task_scale")
    hints: ClassVar[tuple[str, ...]] = ("task_scale",)
    batchable: ClassVar[bool] = True

    alpha: float = knob(1.5, low=0, search=(0.1, 2.0, "linear"), help="how strongly slow tasks are favoured")
    lr: float = knob(0.025, low=0, open_low=True, search=(1e-3, 1e-1, "log"), help="step size of the weights")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            "logits": torch.zeros(*batch, tasks, dtype=torch.float64),
            "initial_losses": torch.full((*batch, tasks), torch.nan, dtype=torch.float64),
            **_hints.task_scale(tasks, batch),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None

        tasks = losses.shape[-1]
        shares = torch.softmax(state["logits"], dim=-1)
        norms = tasks * shares * gramian.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
        mean = norms.mean(-1, keepdim=True)
        relative = norms / torch.where(mean > 0, mean, 1.0)

        slowness = self._slowness(losses / state["task_scale"], state["initial_losses"])
        above_target = torch.sign(relative - slowness**self.alpha) * (mean > 0)
        slope = above_target * relative - shares * (above_target * relative).sum(-1, keepdim=True)
        logits = state["logits"] - self.lr * slope

        # Against drift by rounding. The logits of a subset of the tasks have a nonzero mean, which stays as it is.
        has_zero_mean = state["logits"].mean(-1, keepdim=True).abs() < 1e-9
        logits = torch.where(has_zero_mean, logits - logits.mean(-1, keepdim=True), logits)

        return (tasks * torch.softmax(logits, dim=-1)).to(losses), {**state, "logits": logits}

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        initial = state["initial_losses"]
        return {**state, "initial_losses": torch.where(initial.isnan() & (losses > 0), losses.to(initial), initial)}

    @staticmethod
    def _slowness(losses: Tensor, initial: Tensor) -> Tensor:
        """Return r_t [..., T]: loss over initial loss, divided by its mean over tasks; 1 where that loss is unknown."""
        has_loss = ~initial.isnan()
        ratios = torch.where(has_loss, losses / initial, 0.0)
        mean = ratios.sum(-1, keepdim=True) / has_loss.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(has_loss, ratios / torch.where(mean > 0, mean, 1.0), 1.0)
