"""Runs on data that pass by: on every kind of data, the same for any number of workers, and after a kill."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import context
from reader_cases import CASES, PLUGINS, assert_same, ended, loader, run_of
from sharded import sharded
from torch import Tensor
from two_workers import two_workers

from mtlscale.config import Run, UserError, load_plugin
from mtlscale.data import PreparedData, WindowSampler, Workers, load_prepared
from mtlscale.data.readers.shards import Shards
from mtlscale.data.readers.stream import StreamChunk, pieces_here
from mtlscale.data.sampling.stream_order import EpochPlan
from mtlscale.training import Batches, Trainer, phase_id

SERVED = [case for case in CASES if case not in ("halves", "two turns")]
Load = Callable[[str], PreparedData]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The data of a case in files of 17 rows, in row groups of 4."""
    home = tmp_path_factory.mktemp("home")
    find, known = loader(home), dict[str, Path]()

    def cut(case: str) -> PreparedData:
        name, options, *_ = CASES[case]
        key = f"{name}-{options}"
        if key not in known:
            known[key] = sharded(find(case).folder, home / "data" / "cut" / str(len(known)), 17, 4)
        return load_prepared(known[key])

    return cut


def streamed(case: str, **more: Any) -> Run:
    return run_of(case, "stream", stream_window=2, **more)


@pytest.mark.parametrize("case", SERVED)
def test_a_run_is_that_of_another_reader_in_the_same_order(case: str, load: Load) -> None:
    """Batches, augmentation, weights, missing labels, evaluation: to the last bit."""
    one = Trainer(streamed(case), load(case))
    other = Trainer(run_of(case, "memory"), load(case))
    assert one.batches.reader.name == "stream"
    for updater, model in zip(other.session.updaters, one.session.updaters, strict=True):
        assert isinstance(model.sampler, WindowSampler)
        updater.sampler = model.sampler
    found = ended(one)
    assert_same(found, ended(other), case)
    assert found["losses"].isfinite().all()


def _ended(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Tensor]:
    return ended(Trainer(*job, workers=workers))


def test_two_workers_end_like_one(load: Load) -> None:
    cases = ("vectors", "maps")
    jobs = [(streamed(case, dtype="float64"), load(case)) for case in cases]
    both = two_workers(_ended, jobs)
    for place, job in enumerate(jobs):
        for name, value in ended(Trainer(*job)).items():
            torch.testing.assert_close(both[0][place][name], value, rtol=1e-9, atol=1e-12)
            assert torch.equal(both[0][place][name], both[1][place][name])


@pytest.mark.parametrize("case", ["vectors", "maps", "unlabelled"])
def test_one_two_or_three_workers_have_the_same_batches(case: str, load: Load) -> None:
    found: dict[int, list[dict[str, Tensor]]] = {}
    for world in (1, 2, 3):
        found[world] = []
        ranks = [_steps(streamed(case, augment="none"), load(case), Workers(rank, world)) for rank in range(world)]
        for parts in zip(*ranks, strict=True):
            step: dict[str, list[Tensor]] = {}
            for part in parts:
                for batch in part:
                    step.setdefault(batch.stream, []).append(batch.inputs)
                    for task, target in batch.samples.targets.items():
                        step.setdefault(f"{batch.stream}/{task}", []).append(target)
            found[world].append({name: torch.cat(tensors) for name, tensors in step.items()})
    for world in (2, 3):
        for step, other in zip(found[1], found[world], strict=True):
            assert_same(step, other, f"{world} workers")


def _steps(run: Run, data: PreparedData, workers: Workers) -> list[list[Any]]:
    trainer = Trainer(run, data)
    old = trainer.batches
    batches = Batches(old.reader, old.suite, device=old.device, dtype=old.dtype, workers=workers)
    sampler = trainer.session.main.sampler
    parts = ([(step, None)] for step in sampler.epoch(1))
    return [[batch for part in step for batch in part.batches()] for step in batches.steps(parts, 1, [sampler])]


def _train_until_stopped(run: Run, folder: Path, checkpoints: Path) -> None:
    """Train, and stand still in the middle of the first epoch that finds a checkpoint."""

    def stopping(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        later_epoch = (checkpoints / "checkpoint.pt").exists()
        for number, piece in enumerate(pieces_here(shards, plan, rank)):
            if later_epoch and number > 0:
                (checkpoints / "stopped").touch()
                threading.Event().wait()
            yield piece

    for plugin in PLUGINS:
        load_plugin(plugin)
    torch.set_num_threads(1)
    ended(Trainer(run, load_prepared(folder), folder=checkpoints, pieces=stopping))


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
    load: Load, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--disturb"):
        pytest.skip("the process that is killed is not disturbed")
    data = load("vectors")
    run = streamed("vectors", epochs=4, checkpoint_seconds=0)
    process = context().Process(target=_train_until_stopped, args=(run, data.folder, tmp_path))
    process.start()
    limit = time.monotonic() + 120
    while not (tmp_path / "stopped").exists():
        assert process.is_alive() and time.monotonic() < limit
        time.sleep(0.02)
    process.kill()
    process.join()
    trainer = Trainer(run, data, folder=tmp_path)
    assert next(trainer.train()).epoch > 1  # it goes on from the checkpoint
    assert_same(ended(Trainer(run, data, folder=tmp_path)), ended(Trainer(run, data)), "killed")


def test_the_order_is_part_of_the_run_and_its_phases(load: Load) -> None:
    runs = [run_of("vectors", "auto"), streamed("vectors"), run_of("vectors", "stream")]
    assert len({run.run_id for run in runs}) == 3
    assert len({phase_id(run, run.parts.phases, 0) for run in runs}) == 3
    plain = [run_of("vectors", reader, stream_window=window) for reader in ("auto", "mapped") for window in (3, 16)]
    assert {run.run_id for run in plain} == {runs[0].run_id}
    assert {phase_id(run, run.parts.phases, 0) for run in plain} == {phase_id(runs[0], runs[0].parts.phases, 0)}


@pytest.mark.parametrize(
    ("part", "method", "case", "refusal"),
    [
        ("balancer", "meta_weighting", "vectors", "meta_weighting needs two halves of the training set, .* to mapped"),
        (
            "balancer",
            "svd_reweighting",
            "vectors",
            "svd_reweighting needs the whole training set at once, .* memory",
        ),
        ("architecture", "constant", "maps", "constant needs all training labels at once, .* to memory or device"),
    ],
)
def test_what_needs_more_than_a_window_is_refused(part: str, method: str, case: str, refusal: str, load: Load) -> None:
    name, options, _, model, training = CASES[case]
    CASES["refused"] = (name, options, {part: method}, model, {**training, "augment": "none"})
    try:
        with pytest.raises(UserError, match=refusal) as found:
            Trainer(streamed("refused"), load("refused"))
        assert "\n" not in str(found.value)
    finally:
        del CASES["refused"]


def test_labels_of_one_number_can_be_held(load: Load) -> None:
    name, options, _, model, training = CASES["vectors"]
    CASES["constant"] = (name, options, {"architecture": "constant"}, model, training)
    try:
        found = [ended(Trainer(run, load("constant"))) for run in (streamed("constant"), run_of("constant", "memory"))]
        assert torch.equal(found[0]["test a"], found[1]["test a"])
    finally:
        del CASES["constant"]


def test_a_wrong_route_is_an_error(load: Load) -> None:
    def swapped(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        first, second, *rest = pieces_here(shards, plan, rank)
        yield from (second, first, *rest)

    def others(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        yield from (replace(piece, rank=1) for piece in pieces_here(shards, plan, rank))

    def shifted(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        yield from (replace(piece, rows=piece.rows[::-1]) for piece in pieces_here(shards, plan, rank))

    def short(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        yield next(pieces_here(shards, plan, rank))

    for pieces, said in (
        (swapped, "worker 0 got piece 1 of worker 0 instead of its 0"),
        (others, "worker 0 got piece 0 of worker 1 instead of its 0"),
        (shifted, "the rows that passed by are not those of this step"),
        (short, "nothing more passes by after 1 pieces"),
    ):
        trainer = Trainer(streamed("shared vectors"), load("shared vectors"), pieces=pieces)
        with pytest.raises(RuntimeError, match=said):
            next(trainer.train())


def test_no_more_is_read_than_the_steps_ask_for(load: Load) -> None:
    """And what was opened is closed, whoever stops early."""
    read: list[int] = []

    def counted(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        try:
            for piece in pieces_here(shards, plan, rank):
                read.append(len(piece.rows))
                yield piece
        finally:
            read.append(-1)

    trainer = Trainer(streamed("shared vectors", batch_size=4), load("shared vectors"), pieces=counted)
    sampler = trainer.session.main.sampler
    steps = trainer.batches.steps(([(step, None)] for step in sampler.epoch(1)), 1, [sampler])
    next(steps)
    time.sleep(0.2)
    assert sum(read) <= 4 * 5 + 8  # four steps ahead, and a window of two blocks of four
    steps.close()
    assert read[-1] == -1
