"""ExcessMTL: robustness to label noise by excess risks."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing.contract import JacobianBalancer, State
from mtlscale.config import knob


class ExcessMTL(JacobianBalancer):
    """Weights that grow exponentially with each task's estimated excess risk, gᵀH⁻¹g with AdaGrad's diagonal H.

    Source: He et al. (ICML 2024), eq. 6-9. Weights start at 1/T and stay on the simplex, as in TorchJD's
    ExcessMTLWeighting. Unlike there, the first step too is divided by the first step's risk, so that no step depends on
    the gradients' scale. Needs single coordinates: the state holds a squared gradient per task and shared parameter.
    """

    name: ClassVar[str] = "excess_mtl"
    source: ClassVar[str] = "He et al., ICML 2024, eq. 6-9"
    cost: ClassVar[str] = "T backwards, T x P memory"
    heads = "mean"
    results_version: ClassVar[int] = 3  # a task waits for its first risk above 0; heads by the step's tasks
    per_task: ClassVar[tuple[str, ...]] = ("log_weights", "initial_risk")
    per_row: ClassVar[tuple[str, ...]] = ("squares.",)

    lr: float = knob(0.1, low=0, open_low=True, search=(1e-3, 1.0, "log"), help="step size of the weights")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        zeros = torch.zeros(*batch, tasks, dtype=torch.float64)
        return {"log_weights": torch.log_softmax(zeros, dim=-1), "initial_risk": torch.full_like(zeros, torch.nan)}

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        state = dict(state)
        risk = torch.zeros_like(state["log_weights"])
        for index, gradients in enumerate(jacobian):
            key = f"squares.{index}"
            squares = gradients**2 + state.get(key, 0.0)
            state[key] = squares
            # g²/√(Σ g²), and 0 where every gradient so far was 0
            risk_terms = gradients**2 / torch.where(squares > 0, squares, 1.0).sqrt()
            risk = risk + risk_terms.flatten(1).sum(1).to(risk)

        initial = torch.where(state["initial_risk"] > 0, state["initial_risk"], risk)
        growth = torch.where(initial > 0, risk / torch.where(initial > 0, initial, 1.0), 1.0)
        log_weights = torch.log_softmax(state["log_weights"] + self.lr * growth, dim=-1)
        state.update(log_weights=log_weights + _mass.log_of(state["log_weights"]), initial_risk=initial)

        weights = log_weights.exp()
        return [torch.einsum("t,t...->...", weights.to(gradients), gradients) for gradients in jacobian], state
