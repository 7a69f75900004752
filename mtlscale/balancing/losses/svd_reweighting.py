"""Reweighting of tasks by singular value decomposition (SVD) of their data."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import MISSING_CLASS, UserError, knob
from mtlscale.solvers import subspace_norms


class SVDReweighting(Balancer):
    """Fixed weights from the data: the share of each task that lies in the tasks' leading common directions.

    Source: Wu, Zhang, Ré (ICLR 2020), Algorithm 2. The training loop calls `from_data` in place of `init`. Weights are
    computed once and divided by their mean. Class labels enter as centred indicators (±1 for two classes); each task's
    correlation is a mean over its labelled samples, so tasks of unequal size count equally.
    """

    name: ClassVar[str] = "svd_reweighting"
    source: ClassVar[str] = "Wu et al., ICLR 2020, Algorithm 2"
    per_task: ClassVar[tuple[str, ...]] = ("weights",)
    batchable: ClassVar[bool] = True

    rank: int = knob(2, low=1, search=(1, 2, 4, 8), help="dimension of the common subspace; at most all there is")
    inputs: str = knob(
        "raw", choices=("raw", "features"), help="the inputs, or what a pretrained encoder makes of them"
    )
    center: bool = knob(True, help="subtract the mean from numeric labels")
    standardise: bool = knob(
        False, help="divide each input and each task's labels by their standard deviation", later=True
    )

    @property
    def looks_at_features(self) -> bool:
        return self.inputs == "features"

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        raise UserError(f"{self.name}: computes its weights from training data; call from_data, or train with a loop")

    def from_data(self, inputs: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> State:
        """Return the state with the weights of the training data.

        Args:
            inputs: Inputs [N, d] of each task.
            targets: Classes or numbers [N] of each task, in the order of the tasks.
        """
        directions = [self._correlation(inputs[task], target) for task, target in targets.items()]
        raw = subspace_norms(directions, self.rank)
        mean = raw.mean()
        return {"weights": raw / mean if mean > 0 else torch.ones_like(raw)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        return state["weights"].to(losses), state

    def _correlation(self, inputs: Tensor, target: Tensor) -> Tensor:
        """Return Xᵀy / N over the labelled samples: [d, columns]."""
        if target.is_floating_point():
            labelled = ~target.isnan()
            labels = target[labelled].to(torch.float64).unsqueeze(-1)
            centre = self.center
        else:
            labelled = target != MISSING_CLASS
            classes = max(int(target.max()) + 1, 1) if len(target) else 1
            # √2: for two classes the two centred columns together are as long as one of centred ±1 labels.
            labels = math.sqrt(2.0) * torch.nn.functional.one_hot(target[labelled].long(), classes).to(torch.float64)
            centre = True

        count = max(len(labels), 1)
        if centre:
            labels = labels - labels.sum(0) / count

        samples = inputs[labelled].flatten(1).to(torch.float64)
        if self.standardise and len(samples):
            # One deviation for all columns of a task's labels, or rare classes would count more than others.
            samples = samples / _nonzero(samples.std(0, correction=0))
            labels = labels / _nonzero(labels.var(0, correction=0).sum().sqrt())
        return samples.T @ labels / count


def _nonzero(deviations: Tensor) -> Tensor:
    return torch.where(deviations > 0, deviations, torch.ones_like(deviations))
