import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.data.sampling.sampler import EpochSampler, PooledSampler, slice_for

sizes = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=1)
batches = st.integers(1, 16)


def drawn(sampler: EpochSampler, epoch: int) -> dict[str, list[Tensor]]:
    steps = list(sampler.epoch(epoch))
    return {stream: [step[stream] for step in steps] for stream in sampler.sizes}


@given(sizes, batches, st.integers(0, 5))
def test_an_epoch_is_one_pass_over_the_largest_stream(sizes: dict[str, int], batch: int, epoch: int) -> None:
    sampler = EpochSampler(sizes, batch, seed=1)
    largest = max(sizes.values())
    assert sampler.steps == -(-largest // batch)
    for stream, parts in drawn(sampler, epoch).items():
        assert len(parts) == sampler.steps
        times = torch.cat(parts).bincount(minlength=sizes[stream])
        if sizes[stream] == largest:
            assert times.tolist() == [1] * largest
        else:  # starts over: no sample is more than one pass ahead of another, batches are full
            assert times.max() - times.min() <= 1
            assert {len(part) for part in parts} == {min(batch, sizes[stream])}


@given(sizes, batches, st.integers(1, 20))
def test_a_fixed_number_of_steps_has_full_batches_of_all_streams(sizes: dict[str, int], batch: int, steps: int) -> None:
    sampler = EpochSampler(sizes, batch, seed=1, steps_per_epoch=steps)
    for stream, parts in drawn(sampler, 0).items():
        times = torch.cat(parts).bincount(minlength=sizes[stream])
        assert [len(part) for part in parts] == [min(batch, sizes[stream])] * steps
        assert times.max() - times.min() <= 1


@given(sizes, batches, st.integers(0, 5), st.data())
def test_an_epoch_depends_on_seed_and_number_alone(
    sizes: dict[str, int], batch: int, epoch: int, data: st.DataObject
) -> None:
    used, fresh = EpochSampler(sizes, batch, seed=3), EpochSampler(sizes, batch, seed=3)
    for earlier in range(epoch):
        list(used.epoch(earlier))
    start = data.draw(st.integers(0, fresh.steps))
    expected = list(used.epoch(epoch))[start:]
    for step, other in zip(expected, fresh.epoch(epoch, start), strict=True):
        assert all(torch.equal(step[stream], other[stream]) for stream in sizes)


@given(sizes, batches, st.integers(0, 5), st.data())
def test_a_pooled_epoch_is_one_pass_over_all_samples(
    sizes: dict[str, int], batch: int, epoch: int, data: st.DataObject
) -> None:
    sampler, total = PooledSampler(sizes, batch, seed=1), sum(sizes.values())
    assert sampler.steps == -(-total // batch)
    steps = list(sampler.epoch(epoch))
    assert [sum(map(len, step.values())) for step in steps[:-1]] == [batch] * (sampler.steps - 1)
    for stream, size in sizes.items():
        assert sorted(torch.cat([step[stream] for step in steps]).tolist()) == list(range(size))
        # A step's factor makes the mean over its part of it what all of the task weigh: N n_t / (B N_t).
        for step in steps:
            taken = sum(map(len, step.values()))
            assert sampler.factors(step)[stream] == pytest.approx(total / taken * len(step[stream]) / size)
    start = data.draw(st.integers(0, sampler.steps))
    for step, other in zip(steps[start:], PooledSampler(sizes, batch, seed=1).epoch(epoch, start), strict=True):
        assert all(torch.equal(step[stream], other[stream]) for stream in sizes)


@given(sizes, batches, st.integers(1, 20))
def test_a_fixed_number_of_pooled_steps_has_full_batches(sizes: dict[str, int], batch: int, steps: int) -> None:
    sampler, total = PooledSampler(sizes, batch, seed=1, steps_per_epoch=steps), sum(sizes.values())
    found = list(sampler.epoch(0))
    assert [sum(map(len, step.values())) for step in found] == [min(batch, total)] * steps
    times = torch.cat([torch.cat([step[s] for step in found]).bincount(minlength=sizes[s]) for s in sizes])
    assert times.max() - times.min() <= 1


def test_epochs_seeds_streams_and_passes_are_shuffled_differently() -> None:
    def order(sampler: EpochSampler, epoch: int, stream: str) -> tuple[int, ...]:
        return tuple(torch.cat(drawn(sampler, epoch)[stream]).tolist())

    sampler = EpochSampler({"a": 100, "b": 100, "c": 50}, 10, seed=0)
    short = order(sampler, 0, "c")
    orders = {
        order(sampler, 0, "a"),
        order(sampler, 1, "a"),
        order(sampler, 0, "b"),
        order(EpochSampler({"a": 100}, 10, seed=1), 0, "a"),
    }
    assert len(orders) == 4
    assert short[:50] != short[50:]


@given(st.integers(0, 50), st.integers(1, 7))
def test_slices_are_contiguous_equal_parts(batch: int, world: int) -> None:
    index = torch.randperm(batch)
    parts = [slice_for(index, rank, world) for rank in range(world)]
    assert torch.equal(torch.cat(parts), index)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_an_empty_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="'b': 0"):
        EpochSampler({"a": 3, "b": 0}, 2, seed=0)
