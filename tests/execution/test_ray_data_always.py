"""The sets that Ray Data prepares whatever their size: who they are, the same files, the plan in the log, one Ray."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from data_sets import DATA_SETS
from in_process import prepare as prepare_here
from listening import Listening

from mtlscale.config import Experiment, component, names
from mtlscale.execution import monitoring
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.runner import run
from mtlscale.records import Home
from mtlscale.records.events import Preparing

ALWAYS = ("amazon", "celeba", "cityscapes", "newsgroups", "nyuv2", "taskonomy")
STAGES = {"amazon": "encode", "newsgroups": "encode"}  # the last one; images are decoded
PLANNED = {"amazon": 3, "newsgroups": 3}  # plans; images need one


@pytest.fixture
def plans() -> Iterator[list[tuple[str, str]]]:
    """The plans that are logged: data set and stages."""
    logged: list[tuple[str, str]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "data plan":
                logged.append((vars(record)["dataset"], vars(record)["text"]))

    handler, level = Keep(), monitoring.log.level
    monitoring.log.addHandler(handler)
    monitoring.log.setLevel(logging.INFO)
    yield logged
    monitoring.log.removeHandler(handler)
    monitoring.log.setLevel(level)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_six_sets_say_so() -> None:
    engines = {name: component("datasets", name).engine for name in names("datasets", plugins=False)}  # type: ignore[attr-defined]
    assert {name for name, engine in engines.items() if engine == "ray"} == set(ALWAYS)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("name", ALWAYS)
def test_a_small_source_goes_through_ray_data_with_the_bytes_of_this_process(
    name: str, tmp_path: Path, plans: list[tuple[str, str]]
) -> None:
    entry, steps = DATA_SETS[name], list[tuple[str, int, int, int]]()
    source, options = entry.write(tmp_path / name), dict(entry.options)

    def hear(stage: str, done: int, total: int, size: int = 0) -> None:
        steps.append((stage, done, total, size))

    here = prepare_here(name, options, source, tmp_path / "here")
    assert not plans
    folder = prepare(name, options, source, tmp_path / "home", progress=hear)
    assert folder.name == here.name and content(folder) == content(here)

    assert [dataset for dataset, _ in plans] == [name] * PLANNED.get(name, 1)
    assert all(" -> TaskPoolMapOperator[" in stages and "\n" not in stages for _, stages in plans)
    stage, done, total, size = steps[-1]
    assert stage == STAGES.get(name, "decode") and done == total == sum(entry.counts) and size > 0


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_another_small_set_does_not(tmp_path: Path, plans: list[tuple[str, str]]) -> None:
    entry = DATA_SETS["glue"]
    prepare("glue", dict(entry.options), entry.write(tmp_path / "glue"), tmp_path / "home")
    assert not plans


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_run_says_how_far_its_data_are_and_logs_the_plan(small: Callable[..., Experiment], tmp_path: Path) -> None:
    listening, home = Listening(), Home(tmp_path / "home")
    experiment = small(
        datasets="[newsgroups]",
        methods="[equal]",
        model="{encoder: {name: textcnn, dimensions: 4, filters: 4}}",
        training="{epochs: 1, batch_size: 16, lr: 1e-2}",
        tracking="{enabled: false}",
    )
    board, _ = run(experiment, home, source=DATA_SETS["newsgroups"].write(tmp_path / "news"), sinks=[listening])
    assert board is not None and [record.status for record in board.records] == ["finished"]

    heard = [event for event in listening.events if isinstance(event, Preparing)]
    assert {event.dataset for event in heard} == {"newsgroups"}
    assert {"tokenise", "count words", "encode"} <= {event.stage for event in heard}
    lines = [json.loads(line) for line in (home.root / "logs" / "small.jsonl").read_text().splitlines()]
    stages = [line["text"] for line in lines if line["event"] == "data plan"]
    assert [text.partition("MapBatches")[2] for text in stages] == [
        "(tokenise)]",
        "(_count_train)]",
        "(_encode_table)]",
    ]
