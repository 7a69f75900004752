"""How long the update of each balancer may be by its own formula, and gradients near which rounding hides it.

A rule added tomorrow is looked for in `BOUNDS`: it states a bound, or says in words why it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import mtlscale
from mtlscale.balancing import Balancer
from mtlscale.config import build

PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NOISES = (0.0, 1e-6, 1e-4, 1e-3, 1e-2)
TOLERANCE = 1.01  # times the bound


@dataclass(frozen=True)
class Update:
    """The update [P] of gradients [T, P] with weights [T], all float64; weights are NaN where there are none.

    `failed` says that the step counts as a failure.
    """

    direction: Tensor
    jacobian: Tensor
    weights: Tensor
    eps: float  # of the type that the gradients were stored in
    failed: bool = False

    def over(self, length: Tensor, bound: Tensor | float) -> float:
        """Return the length over its bound, without what rounding makes of gradients that cancel."""
        beyond = float(length - self.eps * self.norms.sum())
        return 0.0 if beyond <= 0 else beyond / max(float(bound), 1e-300)  # NaN stays NaN

    @property
    def average(self) -> Tensor:
        return self.jacobian.mean(0)

    @property
    def norms(self) -> Tensor:
        return self.jacobian.norm(dim=1)


Bound = Callable[[Update], Tensor | float]  # the length over its bound


def _sum_of_gradients(update: Update) -> float:
    return update.over(update.direction.norm(), update.norms.sum())


def _longest_gradient(update: Update) -> float:
    return update.over(update.direction.norm(), update.norms.max())


def _longest_gradient_times_tasks(update: Update) -> float:
    return _longest_gradient(update) / len(update.jacobian)


def _mean_length(update: Update) -> float:
    return update.over(update.direction.norm(), update.norms.mean())


def _average(update: Update) -> float:
    return update.over(update.direction.norm(), update.average.norm())


def _shortest_of_hull(update: Update) -> float:
    """No convex combination is shorter, so neither is any gradient, nor their mean."""
    return update.over(update.direction.norm(), torch.minimum(update.norms.min(), update.average.norm()))


def _ball(update: Update, c: float = 0.5) -> float:
    return update.over((update.direction - update.average).norm(), c * update.average.norm())


def _kappa(update: Update, eps: float = 0.025) -> Tensor:
    return (eps * update.average.norm()).clamp(max=0.9)


def _getmtl(update: Update) -> float:
    return update.over((update.direction - update.average).norm(), _kappa(update) * update.direction.norm())


def _getmtl_exact(update: Update) -> float:
    along = update.average @ update.direction / update.average.norm().clamp(min=1e-300)
    return update.over((update.direction - update.average).norm(), _kappa(update) * along)


def _getmtl_released(update: Update, eps: float = 0.025) -> float:
    """λ multiplies a convex combination s, and is ‖Jᵀs‖ / (κ ‖g₀‖); each share of s is at most e/T."""
    tasks, kappa, size = len(update.jacobian), _kappa(update), update.average.norm()
    factor = tasks / ((1 - kappa**2) * (1 + eps**2))
    shares = (update.weights / factor - 1 / tasks).clamp(min=0)
    combined = update.jacobian.T @ (shares / shares.sum().clamp(min=1e-300))
    return update.over(update.direction.norm(), factor * (size + combined.norm() ** 2 / (kappa * size)))


def _main_gradient(update: Update) -> float:
    return update.over(update.direction.norm(), update.norms[0])


def _nash(update: Update) -> float:
    return update.over(update.direction.norm(), 1.0)  # max_norm


def _fair(update: Update, alpha: float = 2.0) -> float:
    """(K w)_t = w_t^(-1/α), so ‖Jᵀw‖² = Σ w_t^(1 - 1/α)."""
    return update.over(update.direction.norm(), update.weights.pow(1 - 1 / alpha).sum().sqrt())


def _pivrg(update: Update) -> float:
    """K w = √(1/w) and ω = T w."""
    tasks = len(update.jacobian)
    return update.over(update.direction.norm() / tasks, (update.weights / tasks).sqrt().sum().sqrt())


def _ntkmtl(update: Update) -> float:
    return update.over(update.direction.norm(), len(update.jacobian) * update.norms.square().sum().sqrt())


LOSSES = {"pmgda": [1.0 + 0.2 * task for task in range(16)]}  # away from the ray: else it is mgda

BOUNDS: dict[str, Bound | str] = {
    "aligned_mtl": _average,  # components are brought to the shortest one's length
    "auto_lambda": "weights are learned, without a limit",
    "bandit": _longest_gradient,
    "cagrad": _ball,
    "config": _sum_of_gradients,
    "conflict_noticed": "modules get the sum of the gradients, or stay",
    "consmtl": _fair,
    "cosmos": "weights as the objective has them",
    "db_mtl": _longest_gradient_times_tasks,
    "dual_proj": _average,
    "dwa": _longest_gradient_times_tasks,
    "epo": _longest_gradient,
    "equal": _longest_gradient,
    "excess_mtl": _longest_gradient,
    "fairgrad": _fair,
    "famo": _longest_gradient,
    "getmtl": _getmtl,
    "getmtl_exact": _getmtl_exact,
    "getmtl_released": _getmtl_released,
    "gls": "weights as the objective has them",
    "go4align": "weights as the losses have them",
    "graddrop": _sum_of_gradients,
    "gradnorm": _longest_gradient_times_tasks,
    "gradvac": _sum_of_gradients,  # in the first step, where all targets are 0
    "igb": "weights as the losses have them",
    "imtl_g": "the sum of the weights of equal projections may be near 0",
    "imtl_l": "weights as the objective has them",
    "ldc_mtl": "weights as the objective has them",
    "linear_scalarization": _longest_gradient,
    "log_loss": "weights as the losses have them",
    "log_losses": _shortest_of_hull,  # around mgda; the losses are 1
    "look_ahead": "as the wrapped balancer, elsewhere",
    "m_config": _sum_of_gradients,
    "meta_weighting": _longest_gradient,
    "mgda": _shortest_of_hull,
    "mgda_ub": _shortest_of_hull,
    "moco": _longest_gradient,
    "modo": _longest_gradient,
    "nash_mtl": _nash,
    "noise_oracle": "weights are made before training",
    "ntkmtl": _ntkmtl,
    "ntkmtl_sr": _ntkmtl,
    "pbi": "weights as the objective has them",
    "pcd": _main_gradient,
    "pcgrad": _sum_of_gradients,
    "pivrg": _pivrg,
    "pmgda": _nash,  # unit gradients, combined convexly
    "random_static": _longest_gradient,
    "rlw": _longest_gradient,
    "sdmgrad": _average,
    "smooth": _shortest_of_hull,  # around mgda, in the first step
    "static": "weights as given",
    "stch": _longest_gradient,
    "svd_reweighting": "weights are made before training",
    "tchebycheff": _longest_gradient,
    "uncertainty": "weights are learned, without a limit",
    "upgrad": _mean_length,
}


def gradients(kind: str, noise: float, generator: torch.Generator, parameters: int = 1000) -> Tensor:
    """Return gradients [T, P], float64, which are Pareto-stationary but for the noise."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, parameters, dtype=torch.float64, generator=generator)

    a, b, c, between = normal(4)
    between = noise * between
    if kind == "two opposed":
        return torch.stack([a, -a + between])
    if kind == "two opposed and a third":
        return torch.stack([a, -a + between, b])
    if kind == "three that cancel and a fourth":
        return torch.stack([a, b, -a - b + between, c])
    if kind == "two pairs":
        return torch.stack([a, -a + between, b, -b + noise * c])
    if kind == "opposed of unlike lengths":
        lengths = 10.0 ** (4 * torch.rand(3, 1, dtype=torch.float64, generator=generator) - 2)
        return lengths * torch.stack([a, -a + between, b])
    if kind == "a line":
        return a * torch.randn(4, 1, dtype=torch.float64, generator=generator) + noise * normal(4)
    if kind == "rank 3 of 8":
        return torch.randn(8, 3, dtype=torch.float64, generator=generator) @ torch.stack([a, b, c]) + noise * normal(8)
    raise ValueError(kind)


KINDS = (
    "two opposed and a third",
    "two opposed",
    "three that cancel and a fourth",
    "two pairs",
    "opposed of unlike lengths",
    "a line",
    "rank 3 of 8",
)


def own_loop(balancer: Balancer, jacobian: Tensor, losses: Sequence[float] | None = None) -> Update:
    """Return the first update in a loop of one's own, with the gradients as they are in their type."""
    theta = nn.Parameter(torch.zeros(jacobian.shape[1], dtype=jacobian.dtype))
    heads = [nn.Parameter(torch.ones((), dtype=jacobian.dtype)) for _ in jacobian]
    features = theta * 1.0
    values = losses or LOSSES.get(balancer.name, [1.0] * len(heads))
    sums = [head * (row * features).sum() + value for head, row, value in zip(heads, jacobian, values, strict=False)]

    loop = mtlscale.TaskBalancer(balancer, shared=[theta], heads=[[head] for head in heads])
    at_features = balancer.at == "representation" or balancer.aligns_heads
    weights = loop.backward(sums, features=features if at_features else None).weights
    failures = loop.state_dict()["update"]["balancer"].get("failures", torch.zeros(()))
    assert theta.grad is not None
    eps = torch.finfo(jacobian.dtype).eps
    return Update(theta.grad.double(), jacobian.double(), weights, eps, bool(failures))


def make(name: str, **options: object) -> Balancer:
    balancer: Balancer = build("balancers", name, options)
    return balancer
