"""The order of a set that passes by, and what has to be read for it."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.data.sampling.sampler import EpochSampler, WindowSampler, slice_for
from mtlscale.data.sampling.stream_order import EpochPlan

blocks = st.lists(st.integers(1, 9), min_size=1, max_size=12)
streams = st.dictionaries(st.sampled_from("abc"), blocks, min_size=1)


def starts(sizes: list[int]) -> np.ndarray:
    return np.cumsum([0, *sizes])


def sampler(
    of: dict[str, list[int]], batch: int, window: int, steps: int | None = None, seed: int = 1
) -> WindowSampler:
    places = {stream: starts(sizes) for stream, sizes in of.items()}
    return WindowSampler(places, batch, seed, window=window, steps_per_epoch=steps)


steps_or_none = st.one_of(st.none(), st.integers(1, 12))


@given(streams, st.integers(1, 7), st.integers(1, 5), steps_or_none, st.integers(0, 3))
def test_it_has_the_batches_of_an_epoch_in_another_order(
    of: dict[str, list[int]], batch: int, window: int, steps: int | None, epoch: int
) -> None:
    one = sampler(of, batch, window, steps)
    full = EpochSampler(one.sizes, batch, 1, steps_per_epoch=steps)
    found, expected = list(one.epoch(epoch)), list(full.epoch(epoch))
    assert [{k: len(v) for k, v in step.items()} for step in found] == [
        {k: len(v) for k, v in step.items()} for step in expected
    ]
    for stream, size in one.sizes.items():
        order = torch.cat([step[stream] for step in found])
        for turn in order.split(size):  # every pass is a permutation, the last one may be cut off
            assert len(set(turn.tolist())) == len(turn)
            assert turn.min() >= 0 and turn.max() < size


@given(blocks, st.integers(1, 5), st.integers(0, 3))
def test_a_window_is_whole_blocks_in_any_order(sizes: list[int], window: int, epoch: int) -> None:
    one = sampler({"a": sizes}, 4, window)
    order = torch.cat([step["a"] for step in one.epoch(epoch)]).numpy()
    block_of = np.repeat(np.arange(len(sizes)), sizes)
    left = order
    seen: list[int] = []
    while len(left):
        count = next(
            n
            for n in range(1, len(left) + 1)
            if len(here := set(block_of[left[:n]])) == min(window, len(sizes) - len(seen))
            and n == sum(sizes[block] for block in here)
        )
        seen += set(block_of[left[:count]])
        left = left[count:]
    assert sorted(seen) == list(range(len(sizes)))


@given(streams, st.integers(1, 7), st.integers(1, 5), steps_or_none, st.data())
def test_an_epoch_may_be_entered_anywhere(
    of: dict[str, list[int]], batch: int, window: int, steps: int | None, data: st.DataObject
) -> None:
    one = sampler(of, batch, window, steps)
    start = data.draw(st.integers(0, one.steps))
    whole = list(one.epoch(2))[start:]
    for step, other in zip(whole, sampler(of, batch, window, steps).epoch(2, start), strict=True):
        assert all(torch.equal(step[stream], other[stream]) for stream in of)


@given(streams, st.integers(1, 7), st.integers(1, 5), steps_or_none, st.integers(1, 4), st.data())
def test_what_passes_by_is_what_the_workers_ask_for_in_their_order(
    of: dict[str, list[int]], batch: int, window: int, steps: int | None, world: int, data: st.DataObject
) -> None:
    """The same global batches for any number of workers; nothing is read before an item that is needed earlier."""
    one = sampler(of, batch, window, steps)
    start = data.draw(st.integers(0, one.steps))
    plan = pickle.loads(pickle.dumps(one.plan(3, start, world)))  # noqa: S301
    assert isinstance(plan, EpochPlan)
    items = [plan[number] for number in range(len(plan))]
    asked = list(one.epoch(3, start))
    for rank in range(world):
        for stream in of:
            wanted = [slice_for(step[stream], rank, world) for step in asked]
            given_ = [item.parts[rank] for item in items if item.stream == stream]
            assert np.concatenate([np.zeros(0, int), *given_]).tolist() == [i for part in wanted for i in part.tolist()]
    have, place = dict.fromkeys(of, 0), 0
    needed = dict.fromkeys(of, 0)
    for step in asked:
        for stream, index in step.items():
            needed[stream] += len(index)
            while have[stream] < needed[stream]:
                item = items[place]
                assert have[item.stream] < needed[item.stream] + len(step[item.stream])  # not a step too early
                have[item.stream] += sum(map(len, item.parts))
                place += 1


def test_epochs_seeds_streams_and_passes_differ_and_one_window_is_a_full_permutation() -> None:
    def order(one: WindowSampler, epoch: int, stream: str = "a") -> list[int]:
        return torch.cat([step[stream] for step in one.epoch(epoch)]).tolist()

    of = {"a": [10] * 8, "b": [10] * 8, "c": [20]}
    one = sampler(of, 10, 2)
    passes = [order(one, 0, "c")[at : at + 20] for at in (0, 20)]
    orders = [order(one, 0), order(one, 1), order(one, 0, "b"), order(sampler(of, 10, 2, seed=2), 0)]
    assert all(a != b for i, a in enumerate([*orders, *passes]) for b in [*orders, *passes][:i])
    whole = np.array(order(sampler({"a": [10] * 100}, 10, 100), 0))
    assert abs(np.corrcoef(whole, np.arange(1000))[0, 1]) < 0.1


def test_the_order_is_this_one_and_needs_no_torch() -> None:
    """Pinned: another order would need another results version of the reader."""
    text = (
        "import sys, numpy as np; from mtlscale.data.sampling.stream_order import StreamOrder;"
        "o = StreamOrder(np.array([0, 3, 5, 9]), 2, '0/1/all', 9);"
        "print([o.rows(n).tolist() for n in o.windows()], 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert found == "[[4, 7, 6, 3, 8, 5], [2, 1, 0]] False\n"


def test_an_empty_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="every stream needs a sample"):
        WindowSampler({"a": np.array([0])}, 4, 0, window=2)
