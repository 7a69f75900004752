"""The newest rules against their equations in plain numpy (`newest_rules.py`) and, where it has them, TorchJD."""

import newest_rules
import numpy as np
import pytest
import torch
from newest_rules import RULES, Step
from torch import Tensor
from torchjd import aggregation
from torchjd.linalg import QuadprogProjector

from mtlscale.balancing import Balancer, JacobianBalancer, State, balance, direct
from mtlscale.config import build, component

CASES = 200
EXACT = 1e-8
# By seed, so that every kind of step meets each of them.
SETTINGS: dict[str, list[dict[str, object]]] = {
    "db_mtl": [{}, {"beta": 0.3, "sigma": 0.5}],
    "go4align": [{}, {"lr": 0.1, "groups": 3}],
    "ldc_mtl": [{}, {"lam": 0.8, "lr": 0.05}],
    "modo": [{}, {"gamma": 0.1, "rho": 1.0}],
    "m_config": [{}, {"beta": 0.5}],
    "pcd": [{}, {"main": 1, "tau": 0.3, "beta": 0.5}],
}


def update(balancer: Balancer, step: Step, state: State) -> tuple[Tensor, State]:
    """Return the update [P] of a step and the next state."""
    jacobian, losses, present = map(torch.from_numpy, (step.jacobian, step.losses, step.present))
    if isinstance(balancer, JacobianBalancer):
        split = [jacobian[:, :1], jacobian[:, 1:]]
        parts, state = direct(balancer, split, losses, state, present)
        return torch.cat(parts), state
    products = jacobian @ jacobian.T
    if balancer.needs == "validation":
        products = torch.from_numpy(step.other) @ jacobian.T
    weights, state = balance(balancer, losses, None if balancer.needs == "losses" else products, state, present)
    return jacobian.T @ weights, state


@pytest.mark.parametrize("name", RULES)
def test_two_hundred_cases_end_as_the_equations_say(name: str) -> None:
    largest = 0.0
    for seed in range(CASES):
        steps = list(newest_rules.steps(seed))
        tasks = len(steps[0].losses)
        choices = SETTINGS.get(name, [{}])
        settings = choices[seed // len(newest_rules.KINDS) % len(choices)]
        if name == "pcd" and tasks == 1:
            settings = {}
        if name == "pivrg" and seed % 2:
            settings = {"single_task": tuple(np.linspace(0.5, 2.0, tasks))}
        balancer, rule = build("balancers", name, settings), RULES[name](tasks, **settings)

        state = balancer.init(tasks)
        for number, step in enumerate(steps):
            found, state = update(balancer, step, state)
            expected = rule(step)
            assert bool(found.isfinite().all())

            fair = name in ("pivrg", "consmtl")
            if fair and int(step.present.sum()) > 1 and newest_rules.stationary(step.jacobian[step.present]):
                assert int(state["failures"]) > 0  # there is no solution
            else:
                scale = max(np.linalg.norm(expected), np.linalg.norm(step.jacobian, axis=1).max(), 1e-300)
                largest = max(largest, float(np.abs(found.numpy() - expected).max() / scale))
                assert largest <= EXACT, f"case {seed}, step {number}: {largest:.1e}"

            state = balancer.on_epoch_end(torch.from_numpy(step.losses), state)
            rule.end_epoch(step.losses)


PAIRS = CASES // 2  # of two steps each


def independent(seed: int) -> Tensor:
    """Gradients [T, P] of rank T, with conflicts."""
    generator = torch.Generator().manual_seed(seed)
    tasks = 2 + seed % 5
    return torch.randn(tasks, tasks + 3, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(("name", "reference"), [("config", aggregation.ConFIG), ("pcd", aggregation.PCD)])
def test_torchjd_has_the_same_directions(name: str, reference: type[aggregation.Aggregator]) -> None:
    for seed in range(PAIRS):
        jacobian = independent(seed)
        balancer, expected = build("balancers", name, {}), reference()
        state = balancer.init(len(jacobian))
        for factor in (1.0, 0.3):
            gradients = factor * jacobian.roll(int(factor == 1.0), 1)
            weights, state = balancer(torch.ones(len(jacobian)).double(), gradients @ gradients.T, state)
            torch.testing.assert_close(gradients.T @ weights, expected(gradients), rtol=EXACT, atol=EXACT)


def test_torchjd_projects_alike_but_for_its_regularisation() -> None:
    """Its default adds 1e-4 to the Gramian's diagonal; without, and for independent gradients, the answers agree."""
    pytest.importorskip("qpsolvers", reason="TorchJD's extra quadprog_projector is not installed")
    pytest.importorskip("quadprog", reason="TorchJD's extra quadprog_projector is not installed")
    projector = QuadprogProjector(norm_eps=0.0, reg_eps=0.0)
    for seed in range(CASES):
        jacobian = independent(seed)
        balancer = build("balancers", "dual_proj", {})
        weights, _ = balancer(torch.ones(len(jacobian)).double(), jacobian @ jacobian.T, balancer.init(len(jacobian)))
        expected = aggregation.DualProj(projector=projector)(jacobian)
        torch.testing.assert_close(jacobian.T @ weights, expected, rtol=EXACT, atol=EXACT)


def test_torchjd_moves_modo_alike() -> None:
    for seed in range(PAIRS):
        one, other = independent(seed), independent(seed).flip(1)
        balancer, expected = build("balancers", "modo", {"gamma": 0.05}), aggregation.MoDoWeighting(0.05, 0.1)
        state = balancer.init(len(one))
        for _ in range(2):
            weights, state = balancer(torch.ones(len(one)).double(), other @ one.T, state)
            torch.testing.assert_close(weights, expected(one @ other.T), rtol=EXACT, atol=EXACT)


def test_every_new_rule_is_described_by_its_source() -> None:
    assert all(component("balancers", name).source for name in RULES)
