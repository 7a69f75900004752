"""DWA: weights by the losses' rates of descent."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob


class DWA(Balancer):
    """Dynamic weight average: ω = T softmax(r/τ), r_t the ratio of task t's mean losses in the last two epochs.

    Source: Liu, Johns, Davison (CVPR 2019). Ones in the first two epochs; sums to T. As TorchJD's DWA. An epoch
    without a loss of the task above 0 does not count for it; until two do, the task weighs 1.
    """

    name: ClassVar[str] = "dwa"
    source: ClassVar[str] = "Liu et al., CVPR 2019"
    positive_losses: ClassVar[bool] = True
    takes_negative: ClassVar[bool] = True
    results_version: ClassVar[int] = 2  # epochs without a loss above 0 do not count
    per_task: ClassVar[tuple[str, ...]] = ("last", "before_last")
    batchable: ClassVar[bool] = True

    temperature: float = knob(2.0, low=0, open_low=True, search=(0.5, 5.0, "log"), help="τ; large: equal weights")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        unknown = torch.full((*batch, tasks), torch.nan, dtype=torch.float64)
        return {"last": unknown, "before_last": unknown.clone()}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        ratios = state["last"] / state["before_last"]
        has_ratio = ~ratios.isnan()
        shares = torch.softmax(torch.where(has_ratio, ratios / self.temperature, -torch.inf), dim=-1)
        return torch.where(has_ratio, has_ratio.sum(-1, keepdim=True) * shares, 1.0).to(losses), state

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        counts = losses > 0
        last = torch.where(counts, losses.to(state["last"]), state["last"])
        return {**state, "before_last": torch.where(counts, state["last"], state["before_last"]), "last": last}
