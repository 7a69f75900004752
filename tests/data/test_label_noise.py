"""Labels made wrong on purpose: as many as asked for, in training alone, the same for every reader."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, SPLITS, LabelNoise, Task, UserError
from mtlscale.data import PreparedData
from mtlscale.data.readers.random_access import Reader, open_reader
from mtlscale.data.readers.views import check_noise, narrowed, viewed
from mtlscale.data.sampling.label_noise import label_shifts, moved

Uneven = Callable[..., PreparedData]
CPU = torch.device("cpu")
READERS = ("device", "memory", "mapped", "stream")
IDS = [f"train/{number:05d}" for number in range(20_000)]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5])
def test_as_many_labels_move_as_were_asked_for(share: float) -> None:
    count = int((label_shifts(IDS, "a", 2, share, 0) != 0).sum())
    assert abs(count - share * len(IDS)) <= 4.0 * math.sqrt(share * (1 - share) * len(IDS))


def test_every_other_class_is_as_likely() -> None:
    shifts = label_shifts(IDS, "a", 4, 0.6, 0)
    counts = torch.bincount(shifts, minlength=4)[1:]
    assert len(counts) == 3 and (counts - counts.double().mean()).abs().max() <= 4.0 * math.sqrt(0.2 * 0.8 * len(IDS))


def test_a_label_moves_by_its_sample_task_and_seed_alone() -> None:
    whole = label_shifts(IDS, "a", 2, 0.2, 0)
    assert torch.equal(label_shifts(IDS[::-7], "a", 2, 0.2, 0), whole.flip(0)[::7])
    for other in (label_shifts(IDS, "b", 2, 0.2, 0), label_shifts(IDS, "a", 2, 0.2, 1)):
        both = int(((whole != 0) & (other != 0)).sum())
        assert abs(both - 0.04 * len(IDS)) <= 4.0 * math.sqrt(0.04 * 0.96 * len(IDS))  # independent of each other
    more = label_shifts(IDS, "a", 2, 0.3, 0)
    assert bool((more[whole != 0] != 0).all())  # of a larger share the smaller one's are part


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 1, 1, MISSING_CLASS], dtype=torch.int8),
        torch.tensor([0, 1, 1, MISSING_CLASS]),
        torch.tensor([0.0, 1.0, 1.0, math.nan]),
        torch.tensor([[0.0], [1.0], [1.0], [math.nan]]),
    ],
)
def test_what_moves_is_another_label_of_the_same_type_and_nothing_that_is_missing(labels: Tensor) -> None:
    found = moved(labels, torch.tensor([1, 1, 0, 1]), 2)
    assert found.dtype == labels.dtype and found.shape == labels.shape
    torch.testing.assert_close(found[:3].flatten().double(), torch.tensor([1.0, 0.0, 1.0]).double())
    torch.testing.assert_close(found[3], labels[3], equal_nan=True)


def test_a_hundred_classes_fit_in_a_byte() -> None:
    labels = torch.tensor([99, 99, 0], dtype=torch.int8)
    assert moved(labels, torch.tensor([99, 1, 99]), 100).tolist() == [98, 0, 99]


def read(data: PreparedData, kind: str) -> Reader:
    return open_reader(data, kind, device=CPU, dtype=torch.float32)[0]


@pytest.mark.parametrize("shared", [False, True])
def test_every_reader_gives_the_same_noise_in_training_and_none_elsewhere(shared: bool, uneven: Uneven) -> None:
    data = uneven(shared=shared)
    noisy = viewed(data, None, LabelNoise(share=0.4, tasks=("a", "b"), seed=3))
    plain = read(data, "device")
    for kind in READERS:
        reader = read(noisy, kind)
        for split in SPLITS:
            changed = set()
            for stream, size in plain.sizes(split).items():
                index = torch.arange(size)
                clean, found = plain.take(split, stream, index), reader.take(split, stream, index)
                torch.testing.assert_close(found.inputs.float(), clean.inputs)
                some = reader.take(split, stream, torch.tensor([5, 2]))
                for task, labels in clean.targets.items():
                    mine = found.targets[task].to(labels.dtype)
                    torch.testing.assert_close(some.targets[task].to(labels.dtype), mine[[5, 2]], equal_nan=True)
                    there = labels != MISSING_CLASS
                    assert torch.equal(mine[~there], labels[~there])
                    if not torch.equal(torch.nan_to_num(mine), torch.nan_to_num(labels)):
                        changed.add(task)
                    held = read(noisy, "device").take(split, stream, index).targets[task]
                    torch.testing.assert_close(mine, held, equal_nan=True)
            assert changed == ({"a", "b"} if split == "train" else set()), (kind, split)
        for task, labels in reader.targets("train", "it").items():
            torch.testing.assert_close(labels, read(noisy, "device").targets("train", "it")[task], equal_nan=True)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", READERS)
def test_some_of_the_tasks_come_as_if_there_were_no_others(kind: str, shared: bool, uneven: Uneven) -> None:
    data = uneven(shared=shared)
    chosen = viewed(data, ["c", "a"], None)
    assert [task.name for task in chosen.suite.tasks] == ["c", "a"] and chosen.on_disk
    reader, whole = read(chosen, kind), read(data, "device")
    assert set(reader.sizes("train")) == ({"all"} if shared else {"a", "c"})
    for split in SPLITS:
        for stream, size in reader.sizes(split).items():
            samples = reader.take(split, stream, torch.arange(size))
            assert tuple(samples.targets) == chosen.suite.streams[stream]
            expected = whole.take(split, stream, torch.arange(size))
            for task, labels in samples.targets.items():
                torch.testing.assert_close(labels, expected.targets[task].to(labels.dtype), equal_nan=True)
    assert set(reader.targets("train", "it")) == {"c", "a"}


def test_data_without_files_have_noise_by_their_places(uneven: Uneven) -> None:
    data = uneven(shared=True)
    loose = PreparedData(Path(), None, data.suite, {split: data.splits[split] for split in SPLITS})  # type: ignore[arg-type]
    noise = LabelNoise(share=0.5, tasks=("a",))
    found = read(viewed(loose, ["a", "b"], noise), "memory").take("train", "all", torch.arange(20))
    labels = data.splits["train"]["all"].targets["a"][:20]
    shifts = label_shifts([str(place) for place in range(20)], "a", 2, 0.5, 0)
    assert torch.equal(found.targets["a"], moved(labels, shifts, 2)) and bool(shifts.any())


@pytest.mark.parametrize(
    ("noise", "problem"),
    [
        ({"share": 0.2, "tasks": ("d",)}, r"noise in uneven: unknown task 'd'"),
        ({"share": 0.2, "tasks": ("a", "a")}, "a task is named twice"),
        ({"share": 0.2}, r"task c has no classes, one to a sample; name those that have in `noise: \{tasks"),
        ({"share": 0.2, "tasks": ("c",)}, "task c has no classes"),
        ({"share": 0.51, "tasks": ("a",)}, r"share 0\.51 is more than the 0\.5 that makes the labels of a pure chance"),
        ({"share": 0.67, "tasks": ("b",)}, r"more than the 0\.667"),
    ],
)
def test_noise_that_cannot_be_had_is_said_in_one_line(noise: dict[str, object], problem: str, uneven: Uneven) -> None:
    with pytest.raises(UserError, match=problem) as found:
        viewed(uneven(), None, LabelNoise.model_validate(noise))
    assert "\n" not in str(found.value)


def test_maps_and_many_numbers_to_a_sample_have_no_noise(uneven: Uneven) -> None:
    many = Task(name="many", loss="bce", outputs=3, metrics=("f1",))
    suite = replace(uneven().suite, tasks=(many, *uneven().suite.tasks))
    for task, maps in (("many", {}), ("a", {"a": (4, 4)})):
        with pytest.raises(UserError, match=f"task {task} has no classes, one to a sample"):
            check_noise(suite, LabelNoise(share=0.1, tasks=(task,)), maps)
    with pytest.raises(UserError, match="tasks of uneven: unknown task 'A'"):
        narrowed(suite, ["A"])
