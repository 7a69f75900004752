"""Prepared data as a run asks for them: some of their tasks, a share of their training samples, and noise in their
labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mtlscale.data.prepared import PreparedData, SplitsOnDisk
from mtlscale.spec import LabelNoise, Task, TaskSuite, UserError, nearest

if TYPE_CHECKING:
    from mtlscale.data.batches import Samples

_FLIPPED = ("cross_entropy", "bce")  # losses of tasks whose labels are classes


def narrowed(suite: TaskSuite, tasks: Sequence[str] | None) -> TaskSuite:
    """The suite of these of its tasks, in this order (None: as it is). `UserError` for one that it has not."""
    if tasks is None:
        return suite
    known = {task.name: task for task in suite.tasks}
    _check_known(f"tasks of {suite.name}", tasks, list(known))
    return replace(suite, tasks=tuple(known[name] for name in tasks))


def check_noise(suite: TaskSuite, noise: LabelNoise | None, maps: Mapping[str, object]) -> None:
    """`UserError` for noise in labels that are no classes, in tasks that are not there, or beyond chance. maps: the
    tasks with many labels to a sample."""
    if noise is None:
        return
    known = {task.name: task for task in suite.tasks}
    _check_known(f"noise in {suite.name}", noise.tasks or (), list(known))
    for task in (known[name] for name in noise.tasks or known):
        if (
            task.loss not in _FLIPPED
            or (task.loss == "bce" and task.outputs > 1)
            or (task.name in maps or task.per == "token")
        ):
            raise UserError(
                f"noise in {suite.name}: task {task.name} has no classes, one to a sample; name those that have in "
                "`noise: {tasks: [...]}`"
            )
        chance = 1.0 - 1.0 / _classes(task)
        if noise.share > chance:
            raise UserError(
                f"noise in {suite.name}: share {noise.share:g} is more than the {chance:.3g} that makes the labels of "
                f"{task.name} pure chance; lower it"
            )


def check_share(suite: TaskSuite, share: float | Mapping[str, float]) -> None:
    """`UserError` for shares of tasks that are not there, or have no samples of their own."""
    if not isinstance(share, Mapping):
        return
    _check_known(f"train of {suite.name}", list(share), [task.name for task in suite.tasks])
    if suite.inputs == "shared":
        raise UserError(f"train: every sample of {suite.name} has the labels of all tasks; give one share for all")


def viewed(
    data: PreparedData,
    tasks: Sequence[str] | None,
    noise: LabelNoise | None,
    share: float | Mapping[str, float] = 1.0,
) -> PreparedData:
    """The data with these of their tasks, this noise and this share of their training samples, or of those of some
    tasks; nothing is read or copied for it. `UserError` where they cannot be had."""
    if tasks is not None:
        suite = narrowed(data.suite, tasks)
        kind = _ChosenOnDisk if data.on_disk else _Chosen
        data = replace(data, suite=suite, splits=kind(data.splits, suite.streams))
    if share != 1:
        from mtlscale.data.share import TrainingShare

        check_share(data.suite, share)
        data = replace(data, share=TrainingShare(share, data.suite, _ids(data)))
    if noise is None:
        return data
    from mtlscale.data.noise import NoisyLabels

    check_noise(data.suite, noise, data.manifest.target_shapes if data.on_disk else {})
    return replace(data, noise=NoisyLabels(noise, data.suite.tasks, _ids(data)))


def _ids(data: PreparedData) -> Callable[[str], list[str]]:
    """Stream -> ids of its training samples, in their order."""
    from mtlscale.data.shards import ids_of
    from mtlscale.data.shared import origin_of

    def ids(stream: str) -> list[str]:
        if not data.on_disk:  # which have none
            return [str(place) for place in range(len(data.splits["train"][stream]))]
        files = [shard.path for shard in data.manifest.shards("train", stream)]
        return ids_of(data.folder, files, origin_of(data.folder))

    return ids


class _Chosen(Mapping[str, Mapping[str, "Samples"]]):
    """The splits with the streams and tasks of a narrower suite."""

    def __init__(self, splits: Mapping[str, Mapping[str, Samples]], streams: Mapping[str, Sequence[str]]) -> None:
        self._splits, self._streams = splits, streams

    def __getitem__(self, split: str) -> Mapping[str, Samples]:
        from mtlscale.data.noise import with_targets

        whole = self._splits[split]
        return {
            stream: with_targets(whole[stream], {task: whole[stream].targets[task] for task in tasks})
            for stream, tasks in self._streams.items()
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)


class _ChosenOnDisk(_Chosen, SplitsOnDisk):
    """The same of splits in files."""


def _classes(task: Task) -> int:
    return max(2, task.outputs)


def _check_known(where: str, names: Sequence[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: unknown task {name!r}: {nearest(name, known)}")
    if len(set(names)) < len(names):
        raise UserError(f"{where}: a task is named twice; name it once")
