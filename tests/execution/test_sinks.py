"""Sinks of a user's: what they hear, what becomes of one that raises, and of one that refuses."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from listening import Listening

from mtlscale.api import run
from mtlscale.config import UserError, load_experiment
from mtlscale.records import Home
from mtlscale.records.events import Closed, EpochEnded, Event, Planned, RunBegun, RunEnded

pytestmark = pytest.mark.ray
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "sinks" / "mail_failures.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("mail_failures", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Broken:
    """Raises at the second epoch."""

    def __init__(self) -> None:
        self.heard = 0

    def take(self, event: Event) -> None:
        if isinstance(event, EpochEnded):
            self.heard += 1
            if self.heard == 2:
                raise RuntimeError("no luck")


class Refusing:
    def take(self, event: Event) -> None:
        if isinstance(event, Planned):
            raise UserError("not on a Friday; wait until Monday")


def test_sinks_hear_of_every_run_and_one_that_raises_is_named_once(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    plugin = Path(__file__).parents[1] / "plugins"
    path = experiment_file(
        plugins=f"[{plugin / 'uneven.py'}, {plugin / 'tired.py'}]",
        methods="[equal, tired]",
        tracking="{enabled: false}",
        resources="{cpus_per_worker: 4}",
    )
    failures, broken, listening = tmp_path / "failures.txt", Broken(), Listening()
    home = Home(tmp_path / "home")
    results = run(load_experiment(path), home=home, sinks=[broken, example().FailureFile(failures), listening])

    assert [record.status for record in results.records] == ["finished", "failed"]
    assert failures.read_text().startswith("uneven · tired · seed 0: tired.py:")
    assert broken.heard == 2
    assert listening.notes == ["the sink Broken gets nothing from here on (RuntimeError: no luck); the runs go on"]

    kinds = [type(event) for event in listening.events]
    assert kinds.count(RunBegun) == kinds.count(RunEnded) == 2 and kinds[-1] is Closed
    for begun in (event for event in listening.events if isinstance(event, RunBegun)):
        own = [event for event in listening.events if getattr(event, "run_id", "") == begun.run.run_id]
        assert listening.events.index(begun) < listening.events.index(own[0]) and isinstance(own[-1], RunEnded)
    finished = results.records[0].run_id
    told = [event.epoch for event in listening.events if isinstance(event, EpochEnded) and event.run_id == finished]
    assert told == home.epochs(finished) == results.epochs(finished) != []


def test_a_sink_that_raises_is_warned_of_where_no_other_could_show_it(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    path = experiment_file(methods="[equal]", tracking="{enabled: false}")
    with pytest.warns(UserWarning, match="the sink Broken gets nothing from here on") as told:
        run(load_experiment(path), home=tmp_path / "home", sinks=[Broken()])
    assert sum("Broken" in str(warning.message) for warning in told) == 1


def test_a_sink_may_refuse_before_anything_is_trained(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    path = experiment_file(methods="[equal]", tracking="{enabled: false}")
    with pytest.raises(UserError, match="not on a Friday"):
        run(load_experiment(path), home=tmp_path / "home", sinks=[Refusing()])
    assert not list((tmp_path / "home").glob("runs/*/record.json"))
