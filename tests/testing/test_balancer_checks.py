"""The checks of `mtlscale.testing`: each notices the mistake that it is for, and the page's three lines work."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.config import UserError, build
from mtlscale.data import Workers
from mtlscale.testing import balancer_checks
from mtlscale.testing.training import by_threads

DOCS = Path(__file__).parents[2] / "docs"
_CALLS = [0]


class Inverse(Balancer):
    """Weights inversely proportional to the running means of losses: a balancer without a mistake."""

    name: ClassVar[str] = "inverse"
    source: ClassVar[str] = "this test"
    positive_losses: ClassVar[bool] = True
    per_task: ClassVar[tuple[str, ...]] = ("mean",)
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"mean": torch.zeros(*batch, tasks, dtype=torch.float64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        mean = torch.where(state["mean"] > 0, 0.9 * state["mean"] + 0.1 * losses, losses)
        return self.shares(1.0 / mean.clamp(min=1e-12)), {"mean": mean}

    def shares(self, weights: Tensor) -> Tensor:
        return weights / weights.sum(-1, keepdim=True)


class WrongShape(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return super().shares(weights)[..., :1]


class Overflows(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return weights * 1e300


class Twice(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return 2.0 * super().shares(weights)


class ByPosition(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return super().shares(weights * torch.arange(1.0, 1.0 + weights.shape[-1]))


class ByUnit(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return super().shares(weights + 1.0)


class OverAll(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return weights / weights.sum()


class Draws(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        return super().shares(weights * torch.rand(weights.shape[-1]).double())


class Remembers(Inverse):
    """Remembers calls outside its state."""

    def shares(self, weights: Tensor) -> Tensor:
        _CALLS[0] += 1
        return super().shares(weights * (1.0 + 0.1 * (_CALLS[0] % 7) * (torch.arange(weights.shape[-1]) == 0)))


class InPlace(Inverse):
    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        state["mean"].mul_(0.9).add_(0.1 * losses)
        return self.shares(1.0 / state["mean"].clamp(min=1e-12)), state


class Undeclared(Inverse):
    """Keeps an entry by task that it does not declare."""

    per_task: ClassVar[tuple[str, ...]] = ()


class OfAll(Inverse):
    """Divides by the number of all tasks, present or not."""

    per_task: ClassVar[tuple[str, ...]] = ("mean", "all")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**super().init(tasks, batch=batch), "all": torch.full((*batch, tasks), float(tasks)).double()}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        weights, after = super().__call__(losses, gramian, state)
        return weights * losses.shape[-1] / state["all"], {**after, "all": state["all"]}


class FirstLoss(Inverse):
    """Divides by first losses that it cuts to 1e-12."""

    positive_losses: ClassVar[bool] = False  # so that it is told of losses of 0

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        first = torch.where(state["mean"] > 0, state["mean"], losses.clamp(min=1e-12))
        return self.shares(losses / first + 1e-300), {"mean": first}


class Refuses(Inverse):
    def shares(self, weights: Tensor) -> Tensor:
        assert bool(weights.isfinite().all())
        return super().shares(weights)


class ByThread(Inverse):
    """Weighs otherwise on the second worker."""

    def shares(self, weights: Tensor) -> Tensor:
        second = threading.current_thread().name == "worker 1"
        return super().shares(weights ** (2.0 if second else 1.0))


MISTAKES: dict[str, type[Balancer]] = {
    "form": WrongShape,
    "finite": Overflows,
    "one task": Twice,
    "order": ByPosition,
    "scale": ByUnit,
    "batch": OverAll,
    "pure": Draws,
    "resumed": Remembers,
    "missing": Undeclared,
    "alone": OfAll,
    "zero": FirstLoss,
    "not finite": Refuses,
    "workers": ByThread,
}


def check(balancer: Balancer | type[Balancer], name: str, **more: object) -> Callable[[], None]:
    (found,) = [check for check in balancer_checks(balancer, **more) if check.name == name]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("name", [check.name for check in balancer_checks(Inverse)])
def test_a_balancer_without_a_mistake_passes(name: str) -> None:
    check(Inverse, name)()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_check_notices_its_mistake(name: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        check(MISTAKES[name], name)()


def test_a_state_that_is_changed_in_place_is_noticed() -> None:
    with pytest.raises(AssertionError, match="state that it was given"):
        check(InPlace, "pure")()


def test_micro_batches_that_matter_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a balancer can tell micro-batches: an update that forgets the first of them can."""
    from mtlscale.testing import training

    update = training.Update.__call__
    monkeypatch.setattr(training.Update, "__call__", lambda self, micros, **more: update(self, micros[-1:], **more))
    with pytest.raises(AssertionError, match="micro-batches"):
        check(Inverse, "micro-batches")()


def test_a_bound_is_held_in_half_precision() -> None:
    """The min-norm point is no longer than the shortest gradient; the mean of the gradients may be."""

    def of_the_shortest(gradients: Tensor, update: Tensor) -> float:
        return float(update.norm() / gradients.norm(dim=1).min())

    check(build("balancers", "mgda"), "bound", bound=of_the_shortest)()
    with pytest.raises(AssertionError, match=r"times the bound in torch.float32, with noise 0 \(draw 0\)"):
        check(build("balancers", "equal", {"reduction": "sum"}), "bound", bound=of_the_shortest)()


def test_checks_that_do_not_concern_a_balancer_are_not_asked() -> None:
    named = {name: {check.name for check in balancer_checks(name)} for name in ("mgda_ub", "graddrop", "dwa")}
    assert "micro-batches" not in named["mgda_ub"] and "batch" not in named["mgda_ub"]
    assert "one task" not in named["graddrop"]
    assert {"order", "batch", "micro-batches"} <= named["dwa"]
    assert all("bound" not in names for names in named.values())
    assert "order" not in {check.__name__ for check in balancer_checks("dwa", leave_out=["order"])}


@pytest.mark.parametrize(
    ("balancer", "leave_out", "text"),
    [("dwa", ["ordre"], "no check 'ordre' to leave out; choose form,"), ("svd_reweighting", [], "training data")],
)
def test_a_mistake_in_asking_is_said_in_one_line(balancer: str, leave_out: list[str], text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        balancer_checks(balancer, leave_out=leave_out)
    assert "\n" not in str(caught.value)


def test_threads_exchange_what_workers_do_and_one_that_fails_keeps_nobody_waiting() -> None:
    def exchange(workers: Workers) -> list[list[float]]:
        mine = torch.tensor([1.0 + workers.rank, 5.0 - workers.rank])
        gathered = workers.gather(mine)
        many = [mine.clone(), mine[:1].clone()]
        workers.sum_many(many)
        return [gathered[:, 0].tolist(), workers.max(mine.clone()).tolist(), *(part.tolist() for part in many)]

    assert by_threads(exchange) == [[[1.0, 2.0], [2.0, 5.0], [3.0, 9.0], [3.0]]] * 2

    def fail(workers: Workers) -> Tensor:
        if workers.rank:
            raise ValueError("the second")
        return workers.sum(torch.ones(1))

    with pytest.raises(ValueError, match="the second"):
        by_threads(fail)


def test_the_three_lines_of_the_page_are_a_test_file(tmp_path: Path) -> None:
    """They pass for the page's balancer, and fail for one that keeps no state by task."""
    page = (DOCS / "own_method.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (block,) = [block for block in blocks if "import balancer_checks" in block]
    assert len(block.split("\n\n\n")[1].strip().splitlines()) == 3
    shutil.copy(DOCS / "examples" / "running_mean.py", tmp_path)
    (tmp_path / "test_running_mean.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(balancer_checks(Inverse)) - 1} passed" in done.stdout  # one is left out

    plugin = tmp_path / "running_mean.py"
    plugin.write_text(plugin.read_text().replace('= ("mean",)', "= ()"))
    done = subprocess.run([*command, "-k", "missing"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "FAILED test_running_mean.py::test_running_mean[missing]" in done.stdout


def test_no_test_framework_is_needed() -> None:
    program = "import sys, mtlscale.testing; print(*{'pytest', 'hypothesis', 'ray', 'mlflow'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.split() == []
