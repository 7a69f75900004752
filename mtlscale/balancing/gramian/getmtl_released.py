"""GetMTL: gradient trade-offs between tasks, by the authors' released code."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.failure_counters import count
from mtlscale.balancing.gramian.getmtl import GetMTL
from mtlscale.solvers import hidden_part, length_bounds, solve_min_norm


class GetMTLReleased(GetMTL):
    """The rule in the code of GetMTL's authors, which differs from their paper's: nearly equal weights, enlarged.

    Source: github.com/heany/GetMTL. With x the min-norm weights and β those of gradients divided by loss and norm, ω =
    T (u + λ softmax(x ⊙ β)) / ((1 - κ²)(1 + ε²)), λ = ‖Jᵀ softmax(x ⊙ β)‖ / (ε ‖g₀‖²). Their inner problem has no cross
    term, so it is MGDA's, and they multiply by the λ that eq. 13 divides by. Both problems are solved exactly here
    (there: SLSQP and Frank-Wolfe). κ is cut to 0.9, beyond which their objective turns round.
    """

    name: ClassVar[str] = "getmtl_released"
    source: ClassVar[str] = "the released code of Chai et al., ACL 2023 (github.com/heany/GetMTL)"
    heads = "sum"
    positive_losses: ClassVar[bool] = True

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None

        tasks, precision = losses.shape[-1], state["precision"]
        norm = gramian.mean((-2, -1)).clamp(min=0).sqrt()  # ‖g₀‖
        kappa, requested_kappa = self._kappa(norm), self._wanted(norm)

        sizes = gramian.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt() * losses
        inverse = 1.0 / torch.where(sizes > 0, sizes, 1.0)
        raw = solve_min_norm(gramian, precision=precision)
        scaled = solve_min_norm(inverse.unsqueeze(-1) * gramian * inverse.unsqueeze(-2), precision=precision)
        shares = torch.softmax(raw.weights * scaled.weights, dim=-1)

        # λ = ‖Jᵀs‖ / (κ‖g₀‖), no larger than it is for certain; without an average there is nothing to divide by.
        hidden = hidden_part(gramian, precision).to(gramian)
        length, _ = length_bounds(shares, gramian, hidden)
        _, longest = length_bounds(torch.full_like(shares, 1.0 / tasks), gramian, hidden)
        pull = torch.where(norm > 0, length / torch.where(norm > 0, self._kappa(longest) * longest, 1.0), 0.0)

        factor = tasks / ((1.0 - kappa.square()) * (1.0 + self.eps**2))
        weights = factor.unsqueeze(-1) * (1.0 / tasks + pull.unsqueeze(-1) * shares)

        state = {**state, "kappa": torch.maximum(state["kappa"], kappa)}
        state = count(state, failures=~(raw.converged & scaled.converged), clamps=requested_kappa > kappa)
        single_task = torch.ones_like(losses)
        return (single_task if tasks == 1 else weights).to(losses), state
