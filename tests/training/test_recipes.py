"""Recipes: the default one, one of a user's own, and what is said of those that are none."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from two_workers import two_workers

from mtlscale.config import Experiment, Run, UserError
from mtlscale.data import PreparedData, Workers
from mtlscale.execution.workers import trial
from mtlscale.execution.workers.jobs import Job, Options
from mtlscale.records.events import RunEnded
from mtlscale.training import Trainer, finish, supervised, train

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "reptile.py"
UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"
TRAINING = "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9, checkpoint_seconds: 0}"
Work = tuple[Run, PreparedData]


@pytest.fixture
def work(small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Any) -> Callable[..., Work]:
    """The run of a method, with the plugin of the example or another."""

    def make(method: str, plugin: Path = EXAMPLE) -> Work:
        experiment = small(plugins=f"[{UNEVEN}, {plugin}]", methods=f"[{method}]", training=TRAINING)
        data = uneven()
        return run_of(experiment, data), data

    return make


def test_the_default_recipe_reads_on_a_page() -> None:
    source = inspect.getsource(supervised)
    assert len(source.splitlines()) <= 80
    page = Path(__file__).parents[2] / "docs" / "architecture.md"
    assert source in page.read_text(encoding="utf-8")


def test_the_whole_way_is_the_default_recipe(work: Callable[..., Work]) -> None:
    plain, reptile = train(*work("hps")), train(*work("{architecture: {name: reptile, rate: 1.0}}"))
    for one, other in zip(plain.epochs, reptile.epochs, strict=True):
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-12)
    assert reptile.chosen_epoch == plain.chosen_epoch and reptile.structure == plain.structure
    assert train(*work("reptile")).epochs[-1].train_loss != plain.epochs[-1].train_loss


def test_a_recipe_that_was_cut_off_goes_on(work: Callable[..., Work], tmp_path: Path) -> None:
    run, data = work("reptile")
    whole = train(run, data)
    list(itertools.islice(Trainer(run, data, folder=tmp_path).train(), 2))
    again = train(run, data, folder=tmp_path)
    assert [epoch.train_loss for epoch in again.epochs] == [epoch.train_loss for epoch in whole.epochs]
    assert again.metrics == whole.metrics


def _parameters(work: Work, workers: Workers) -> dict[str, torch.Tensor]:
    trainer = Trainer(*work, workers=workers)
    finish(trainer)
    return {name: value.detach() for name, value in trainer.model.named_parameters()}


def test_two_workers_end_where_one_ends(work: Callable[..., Work]) -> None:
    job = work("reptile")
    alone = _parameters(job, Workers())
    for (parameters,) in two_workers(_parameters, [job]):
        for name, value in alone.items():
            torch.testing.assert_close(parameters[name], value, rtol=1e-9, atol=1e-12)


def test_a_run_with_its_own_recipe_is_not_batched(work: Callable[..., Work]) -> None:
    from mtlscale.batched.eligibility.planning import obstacle

    run, data = work("reptile")
    assert obstacle(run, data.suite) == "architecture reptile has a recipe of its own"
    assert obstacle(work("hps")[0], data.suite) is None


BROKEN = """
from typing import ClassVar

from mtlscale.architectures.hard.hps import HPS, HPSModule


class Module(HPSModule):
    def after_step(self, lr, sum):
        {hook}


class Broken(HPS):
    name: ClassVar[str] = "broken"

    def build(self, suite, encoder, dropout):
        return Module(suite, encoder(), dropout)

    def recipe(self, run):
        {recipe}
"""


@pytest.fixture
def error(work: Callable[..., Work], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the record of a run says that a broken plugin has."""

    def say(hook: str = "pass", recipe: str = "return None") -> str:
        plugin = tmp_path / "broken.py"
        plugin.write_text(BROKEN.format(hook=hook, recipe=recipe), encoding="utf-8")
        run, data = work("broken", plugin)
        monkeypatch.setattr(trial, "read_data", lambda *_: data)
        options = Options(resources=Experiment.model_fields["resources"].get_default(call_default_factory=True))
        *_, end = trial.execute(Job(run, tmp_path / "data", tmp_path / run.run_id), options)
        assert isinstance(end, RunEnded) and end.record.status == "failed"
        return str(end.record.error)

    return say


def test_a_recipe_without_a_record_is_refused_in_a_line(error: Callable[..., str]) -> None:
    line = "architecture broken: its recipe returns NoneType, no record; end it with return run.record()"
    assert error(recipe="yield from ()").endswith(line)


def test_a_recipe_without_epochs_is_refused_in_a_line(error: Callable[..., str]) -> None:
    line = "architecture broken: its recipe yields no epochs; yield run.log(epoch) after each"
    assert error(recipe="return run.record()").endswith(line)


def test_a_hook_that_raises_fails_the_run_with_its_place(error: Callable[..., str]) -> None:
    assert error(hook='raise ValueError("too far")') == "broken.py:9: ValueError: too far"


def test_a_recipe_that_returns_none_is_the_default(work: Callable[..., Work], tmp_path: Path) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(BROKEN.format(hook="pass", recipe="return None"), encoding="utf-8")
    found, plain = train(*work("broken", plugin)), train(*work("hps"))
    assert [epoch.train_loss for epoch in found.epochs] == [epoch.train_loss for epoch in plain.epochs]


def test_a_recipe_is_a_users_error_not_a_traceback(work: Callable[..., Work], tmp_path: Path) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(BROKEN.format(hook="pass", recipe="return [1]"), encoding="utf-8")
    with pytest.raises(UserError, match="yields no epochs"):
        train(*work("broken", plugin))
