"""The same runs from every reader, to the last bit; batches made ahead of the step, in order and not too many."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from reader_cases import CASES, assert_same, ended, loader, run_of
from torch import Tensor
from two_workers import two_workers

from mtlscale.batched import BatchedTrainer
from mtlscale.config import Run, UserError
from mtlscale.data import PreparedData, Workers
from mtlscale.training import Trainer, made_ahead


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], PreparedData]:
    """The data of a case."""
    return loader(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("case", CASES)
def test_runs_end_alike_to_the_last_bit_whatever_reads(case: str, load: Callable[[str], PreparedData]) -> None:
    found = {}
    for reader in ("device", "memory", "mapped"):
        trainer = Trainer(run_of(case, reader), load(case))
        assert trainer.batches.reader.name == reader
        found[reader] = ended(trainer)
    assert_same(found["device"], found["memory"], "memory")
    assert_same(found["device"], found["mapped"], "mapped")
    assert found["device"]["losses"].isfinite().all()


def _ended(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Tensor]:
    return ended(Trainer(*job, workers=workers))


def test_two_workers_end_alike_whatever_reads(load: Callable[[str], PreparedData]) -> None:
    cases = ("vectors", "tokens with weights", "maps", "unlabelled")
    readers = ("device", "memory", "mapped")
    jobs = [(run_of(case, reader, epochs=1, steps_per_epoch=3), load(case)) for case in cases for reader in readers]
    both = two_workers(_ended, jobs)
    for rank in both:
        for place, case in enumerate(cases):
            device, memory, mapped = rank[3 * place : 3 * place + 3]
            assert_same(device, memory, f"{case}, memory")
            assert_same(device, mapped, f"{case}, mapped")
    one = ended(Trainer(*jobs[2]))
    for name, value in one.items():
        torch.testing.assert_close(both[0][2][name], value, rtol=1e-9, atol=1e-12)


def test_the_reader_is_no_part_of_the_run_or_its_phases(load: Callable[[str], PreparedData]) -> None:
    from mtlscale.training import phase_id

    runs = [run_of("vectors", reader) for reader in ("auto", "device", "mapped")]
    assert len({run.run_id for run in runs}) == 1
    assert len({phase_id(run, run.parts.phases, 0) for run in runs}) == 1


def test_pictures_are_those_of_every_reader(load: Callable[[str], PreparedData]) -> None:
    found = []
    for reader in ("device", "mapped"):
        trainer = Trainer(run_of("maps", reader, epochs=1), load("maps"))
        ended(trainer)
        pictures = trainer.pictures(3)
        assert pictures is not None
        found.append(pictures)
    assert torch.equal(found[0].images, found[1].images) and found[0].images.dtype == torch.uint8
    for name, (guess, truth) in found[0].maps.items():
        assert torch.equal(guess, found[1].maps[name][0])
        torch.testing.assert_close(truth, found[1].maps[name][1], rtol=0, atol=0, equal_nan=True)


def test_a_method_that_needs_the_whole_set_says_so(load: Callable[[str], PreparedData]) -> None:
    for method, kind, refusal in (
        ("svd_reweighting", "vectors", "svd_reweighting needs the whole training set at once, .* mapped does not hold"),
        ("constant", "maps", "constant needs all training labels at once, .* mapped does not hold"),
    ):
        part = "balancer" if method == "svd_reweighting" else "architecture"
        name, options, _, model, training = CASES[kind]
        CASES["whole"] = (name, options, {part: method}, model, {**training, "augment": "none"})
        try:
            with pytest.raises(UserError, match=refusal):
                Trainer(run_of("whole", "mapped"), load("whole"))
            found = [ended(Trainer(run_of("whole", reader), load("whole"))) for reader in ("device", "memory")]
            assert_same(*found, method)
        finally:
            del CASES["whole"]


def test_batched_trials_hold_the_whole_set(load: Callable[[str], PreparedData]) -> None:
    with pytest.raises(UserError, match="batching trials needs the whole training set at once"):
        BatchedTrainer([run_of("vectors", "mapped")], load("vectors"))


# -- ahead of the step ---------------------------------------------------------------------------------------------


def test_what_is_made_ahead_comes_in_order_and_only_so_much_of_it() -> None:
    made, lock = [], threading.Lock()

    def make(item: int) -> int:
        time.sleep(0.002 * (item % 3))  # later ones may be ready first
        with lock:
            made.append(item)
        return 10 * item

    found = made_ahead(range(20), make, ahead=3, threads=2)
    assert next(found) == 0
    time.sleep(0.05)
    assert sorted(made) == [0, 1, 2]  # nobody has asked for more
    assert [0, *found] == [10 * item for item in range(20)]


def test_what_goes_wrong_ahead_is_raised_where_it_is_asked_for() -> None:
    def make(item: int) -> int:
        if item == 2:
            raise OSError("the disk is gone")
        return item

    found = made_ahead(range(9), make, ahead=4)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    assert not _threads()


def test_threads_end_with_whoever_asked() -> None:
    with closing(made_ahead(itertools.count(), lambda item: item)) as found:
        assert next(found) == 0 and _threads()
    assert not _threads()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def test_no_gradient_is_kept_ahead_where_none_is_kept_here() -> None:
    weight = torch.ones(1, requires_grad=True)
    with torch.no_grad():
        assert not next(made_ahead([1], lambda item: weight * item)).requires_grad
    assert next(made_ahead([1], lambda item: weight * item)).requires_grad


def test_a_file_that_fails_in_mid_epoch_ends_the_run_with_its_error(
    load: Callable[[str], PreparedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(run_of("vectors", "mapped"), load("vectors"))
    real, calls = trainer.batches.reader.take, itertools.count()

    def take(*what: Any) -> Any:
        if next(calls) == 5:
            raise OSError("Input/output error")
        return real(*what)

    monkeypatch.setattr(trainer.batches.reader, "take", take)
    with pytest.raises(OSError, match="Input/output"):
        ended(trainer)
    assert not _threads()


def test_time_spent_waiting_is_told(load: Callable[[str], PreparedData], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(run_of("images", "mapped", epochs=1), load("images"))
    real = trainer.batches.reader.take

    def slow(*what: Any) -> Any:
        time.sleep(0.05)
        return real(*what)

    monkeypatch.setattr(trainer.batches.reader, "take", slow)
    epochs: Iterator[Any] = trainer.train()
    assert 0 < next(epochs).traces["data_share"] <= 1 and trainer.batches.waited >= 0.05
