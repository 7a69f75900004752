"""A share of the training samples: as many as asked for, the same for every reader, and the rest of the set whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from mtlscale.config import SPLITS, LabelNoise, Task, TaskSuite, UserError
from mtlscale.data import PreparedData, Samples
from mtlscale.data.readers.random_access import Reader, open_reader
from mtlscale.data.readers.views import viewed
from mtlscale.data.sampling.splits import kept_count
from mtlscale.data.sampling.train_fraction import kept_indices

Uneven = Callable[..., PreparedData]
CPU = torch.device("cpu")
READERS = ("device", "memory", "mapped")
IDS = [f"train/{number:05d}" for number in range(2_000)]


def read(data: PreparedData, kind: str) -> Reader:
    return open_reader(data, kind, device=CPU, dtype=torch.float32)[0]


def test_a_larger_share_adds_to_a_smaller_one() -> None:
    found = [set(kept_indices(IDS, share).tolist()) for share in (0.05, 0.1, 0.25, 1.0)]
    assert [len(places) for places in found] == [100, 200, 500, 2000]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(found))


def test_which_samples_those_are_says_their_id_and_not_their_place() -> None:
    order = np.random.default_rng(0).permutation(len(IDS))
    shuffled = [IDS[place] for place in order]
    here = {IDS[place] for place in kept_indices(IDS, 0.1)}
    assert here == {shuffled[place] for place in kept_indices(shuffled, 0.1)}
    halves = [sum(id < IDS[1000] for id in here), sum(id >= IDS[1000] for id in here)]
    assert min(halves) > 60  # of about 100 each: no stretch of the set


@pytest.mark.parametrize(("size", "share", "count"), [(3, 0.1, 1), (1, 0.01, 1), (230, 0.1, 23), (7, 1.0, 7)])
def test_a_task_keeps_one_sample_at_least(size: int, share: float, count: int) -> None:
    assert kept_count(size, share) == count == len(kept_indices(IDS[:size], share))


@pytest.mark.parametrize("noise", [None, LabelNoise(share=0.4, tasks=("a", "b"))])
@pytest.mark.parametrize("shared", [False, True])
def test_every_reader_gives_the_same_samples_and_all_of_validation_and_test(
    shared: bool, noise: LabelNoise | None, uneven: Uneven
) -> None:
    data = uneven(shared=shared)
    whole, few = viewed(data, None, noise), viewed(data, None, noise, 0.25)
    plain = read(whole, "device")
    for kind in READERS:
        reader = read(few, kind)
        for split in ("val", "test"):
            assert reader.sizes(split) == plain.sizes(split)
        for stream, size in plain.sizes("train").items():
            assert reader.sizes("train")[stream] == kept_count(size, 0.25)
            at = few.train_fraction.places("train", stream) if few.train_fraction else None
            assert at is not None
            index = torch.tensor([4, 0, 2])
            found, expected = reader.take("train", stream, index), plain.take("train", stream, at[index])
            torch.testing.assert_close(found.inputs.float(), expected.inputs)
            everything = reader.whole("train", "it")[stream] if kind != "mapped" else None
            for task, labels in expected.targets.items():
                torch.testing.assert_close(found.targets[task].to(labels.dtype), labels, equal_nan=True)
                all_labels = plain.targets("train", "it")[task][at]
                torch.testing.assert_close(reader.targets("train", "it")[task], all_labels, equal_nan=True)
                if everything is not None:
                    torch.testing.assert_close(everything.targets[task], all_labels, equal_nan=True)


def loose(labels: list[float], unlabelled: tuple[str, ...] = ()) -> PreparedData:
    """A set without files: a task of forty samples with these labels, and streams without any."""
    task = Task(name="a", loss="bce", outputs=1, metrics=("accuracy",))
    suite = TaskSuite(
        name="loose", tasks=(task,), inputs="per_task", input_kind="vector", input_shape=(2,), unlabelled=unlabelled
    )
    streams = {"a": Samples(torch.zeros(len(labels), 2), {"a": torch.tensor(labels)[:, None]})}
    streams |= {name: Samples(torch.zeros(40, 2), {}) for name in unlabelled}
    return PreparedData(Path(), None, suite, dict.fromkeys(SPLITS, streams))  # type: ignore[arg-type]


def test_what_has_no_labels_stays_whole() -> None:
    reader = read(viewed(loose([0.0, 1.0] * 20, ("more",)), None, None, 0.1), "memory")
    assert reader.sizes("train") == {"a": 4, "more": 40} and reader.sizes("test") == {"a": 40, "more": 40}


def test_a_task_without_a_label_among_them_is_named() -> None:
    labels = [1.0] * 40
    for place in kept_indices([str(place) for place in range(40)], 0.1).tolist():
        labels[place] = float("nan")
    with pytest.raises(UserError, match=r"train: 0\.1 of the samples of loose leaves task a without a label; use a la"):
        read(viewed(loose(labels), None, None, 0.1), "memory")
    assert read(viewed(loose(labels), None, None, 0.2), "memory").sizes("train") == {"a": 8}


def test_what_passes_by_passes_by_whole(uneven: Uneven) -> None:
    with pytest.raises(UserError, match=r"reader stream has no share of uneven; set training\.reader to another"):
        read(viewed(uneven(), None, None, 0.5), "stream")


@pytest.mark.parametrize("kind", READERS)
def test_a_share_of_one_task_leaves_the_others_whole(kind: str, uneven: Uneven) -> None:
    data = uneven()
    whole, few, all_few = (read(viewed(data, None, None, share), kind) for share in (1.0, {"a": 0.25}, 0.25))
    assert few.sizes("train") == {**whole.sizes("train"), "a": all_few.sizes("train")["a"]}
    assert few.sizes("val") == whole.sizes("val")
    index = torch.tensor([3, 0])
    for of, task in ((all_few, "a"), (whole, "b")):
        expected = of.take("train", task, index)
        torch.testing.assert_close(few.take("train", task, index).inputs, expected.inputs)
        torch.testing.assert_close(few.targets("train", "it")[task], of.targets("train", "it")[task])


def test_shares_of_tasks_that_are_not_there_or_have_no_samples_of_their_own(uneven: Uneven) -> None:
    with pytest.raises(UserError, match="train of uneven: unknown task 'z'"):
        viewed(uneven(), None, None, {"z": 0.5})
    with pytest.raises(UserError, match="has the labels of all tasks; give one share for all"):
        viewed(uneven(shared=True), None, None, {"a": 0.5})
