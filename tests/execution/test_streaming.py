"""Ray Data reads what passes by: the pieces that a process would read itself, for one worker and for two."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtlscale.config import Experiment, ResourceSpec, Run
from mtlscale.data import PreparedData, WindowSampler, load_prepared
from mtlscale.data.readers.shards import Shards
from mtlscale.data.readers.stream import StreamChunk, pieces_here
from mtlscale.data.sampling.stream_order import EpochPlan
from mtlscale.execution import Job, Options
from mtlscale.execution.preparing.streaming import RayPieces
from mtlscale.execution.workers.trial import execute
from mtlscale.records.events import EpochEnded, RunEnded
from mtlscale.training import Trainer, finish

pytestmark = pytest.mark.ray


@pytest.fixture
def cut(uneven: Callable[..., PreparedData], tmp_path: Path) -> PreparedData:
    from sharded import sharded  # Ray's workers import this module and know no such one

    return load_prepared(sharded(uneven().folder, tmp_path / "data" / "uneven" / "cut", 17, 4))


def plan_of(data: PreparedData, world: int, steps: int | None = None) -> tuple[dict[str, Shards], EpochPlan]:
    shards = {stream: Shards.of(data.folder, data.manifest, "train", stream) for stream in data.suite.streams}
    starts = {stream: one.starts for stream, one in shards.items()}
    return shards, WindowSampler(starts, 7, 0, window=2, steps_per_epoch=steps).plan(1, 0, world)


def assert_same(found: list[StreamChunk], expected: Iterator[StreamChunk]) -> None:
    for left, right in zip(found, expected, strict=True):
        assert (left.number, left.rank, left.stream) == (right.number, right.rank, right.stream)
        assert np.array_equal(left.rows, right.rows)
        assert left.columns.keys() == right.columns.keys()
        for name, values in left.columns.items():
            other = right.columns[name]
            assert (values.dtype, values.shape) == (other.dtype, other.shape)
            assert values.tobytes() == other.tobytes()


def test_one_worker_gets_what_it_would_read_itself(cut: PreparedData, local_ray: None) -> None:
    shards, plan = plan_of(cut, 1)
    assert len(plan) > 8
    assert_same(list(RayPieces()(shards, plan, 0)), pieces_here(shards, plan, 0))
    elsewhere = {stream: replace(one, folder=cut.folder / "absent") for stream, one in shards.items()}
    by_url = RayPieces(f"file://{cut.folder}")(elsewhere, plan, 0)  # on a node that has not got the files
    assert_same(list(by_url), pieces_here(shards, plan, 0))


class Consumer:
    """A worker of a run: half of all CPUs, joined with the other one."""

    def __init__(self, rank: int, meeting: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
        self.rank, self.pieces = rank, RayPieces()

    def read(self, folder: Path, steps: int | None, most: int) -> list[StreamChunk]:
        shards, plan = plan_of(load_prepared(folder), 2, steps)
        pieces = self.pieces(shards, plan, self.rank)
        found = [piece for piece, _ in zip(pieces, range(most), strict=False)]
        pieces.close()
        time.sleep(0.3 * self.rank)  # the first is done before
        return found


@pytest.mark.slow
def test_two_workers_get_theirs_in_turn_while_they_hold_all_cpus(
    cut: PreparedData, tmp_path: Path, local_ray: None
) -> None:
    import ray

    remote: Any = ray.remote(num_cpus=2)(Consumer)
    consumers = [remote.remote(rank, str(tmp_path / "meeting")) for rank in range(2)]
    try:
        for steps, most in ((None, 10**6), (None, 3), (5, 10**6)):  # one of them ends early
            found = ray.get([one.read.remote(cut.folder, steps, most) for one in consumers])
            shards, plan = plan_of(cut, 2, steps)
            for rank, own in enumerate(found):
                expected = list(pieces_here(shards, plan, rank))[:most]
                assert_same(own, iter(expected))
    finally:
        for one in consumers:
            ray.kill(one)
    assert _nothing_runs()


def test_a_run_reads_through_ray_and_leaves_nothing_running(
    small: Callable[..., Experiment],
    cut: PreparedData,
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    lines = "{epochs: 2, batch_size: 16, lr: 1e-2, dtype: float64, reader: stream, stream_window: 2}"
    run = run_of(small(training=lines), cut)
    options = Options(ResourceSpec())
    (end,) = [e for e in execute(Job(run, cut.folder, tmp_path / "run"), options) if isinstance(e, RunEnded)]
    assert end.record.status == "finished", end.record.error
    alone = Trainer(run, cut)
    finish(alone)
    for name, value in torch.load(tmp_path / "run" / "model.pt", weights_only=True).items():
        assert torch.equal(value, alone.chosen_state[name])
    wild = run_of(small(training=lines.replace("1e-2", "1e300")), cut)  # ends in mid-epoch
    (end,) = [e for e in execute(Job(wild, cut.folder, tmp_path / "wild"), options) if isinstance(e, RunEnded)]
    assert end.record.status == "diverged"
    assert _nothing_runs()


def test_files_that_vanish_while_a_run_reads_them_are_named_in_one_line(
    small: Callable[..., Experiment],
    cut: PreparedData,
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    """Somebody removes the prepared set after the first epoch, from under Ray Data's tasks."""
    run = run_of(small(training="{epochs: 50, batch_size: 16, reader: stream, stream_window: 2}"), cut)
    ends = []
    for event in execute(Job(run, cut.folder, tmp_path / "run"), Options(ResourceSpec())):
        if isinstance(event, EpochEnded):
            shutil.rmtree(cut.folder, ignore_errors=True)
        ends += [event.record] if isinstance(event, RunEnded) else []
    (record,) = ends
    assert record.status == "failed" and record.error is not None and "\n" not in record.error
    assert f"FileNotFoundError: [Errno 2] {cut.folder}/train/" in record.error
    assert record.error.endswith(".parquet has vanished since it was prepared; the same command prepares it again")
    assert not (tmp_path / "run" / "record.json").exists()
    assert _nothing_runs()


def _nothing_runs() -> bool:
    """Whether no task reads any more and no actor deals out, after a while."""
    import threading

    from ray._private.state import actors

    for _ in range(60):
        gc.collect()
        alive = [a for a in actors().values() if "SplitCoordinator" in str(a) and a["State"] not in ("DEAD", 4)]
        threads = [t.name for t in threading.enumerate() if t.name.startswith("StreamingExecutor")]
        if not alive and not threads:
            return True
        time.sleep(0.2)
    raise AssertionError(f"still there: {alive} {threads}")
