"""Views of prepared data for a run: some of the tasks, a share of the training samples, and label noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mtlscale.config import LabelNoise, Task, TaskSuite, UserError, nearest
from mtlscale.data.readers.prepared import PreparedData, SplitsOnDisk

if TYPE_CHECKING:
    from mtlscale.data.batches import Samples

_FLIPPED = ("cross_entropy", "bce")  # losses of tasks whose labels are classes


def narrowed(suite: TaskSuite, tasks: Sequence[str] | None) -> TaskSuite:
    """Return the suite with only the given tasks, in this order; None keeps all.

    Raises:
        UserError: If the suite lacks one of them.
    """
    if tasks is None:
        return suite
    tasks_by_name = {task.name: task for task in suite.tasks}
    _check_known(f"tasks of {suite.name}", tasks, list(tasks_by_name))
    return replace(suite, tasks=tuple(tasks_by_name[name] for name in tasks))


def check_noise(suite: TaskSuite, noise: LabelNoise | None, maps: Mapping[str, object]) -> None:
    """Raise `UserError` for noise in labels that are no classes, in unknown tasks, or beyond chance.

    Args:
        noise: The noise, if any.
        maps: The tasks with many labels to a sample.
    """
    if noise is None:
        return

    tasks_by_name = {task.name: task for task in suite.tasks}
    _check_known(f"noise in {suite.name}", noise.tasks or (), list(tasks_by_name))
    for task in (tasks_by_name[name] for name in noise.tasks or tasks_by_name):
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


def check_train_fraction(suite: TaskSuite, train_fraction: float | Mapping[str, float]) -> None:
    """Raise `UserError` for shares of unknown tasks, or of tasks that have no samples of their own."""
    if not isinstance(train_fraction, Mapping):
        return
    _check_known(f"train of {suite.name}", list(train_fraction), [task.name for task in suite.tasks])
    if suite.inputs == "shared":
        raise UserError(f"train: every sample of {suite.name} has the labels of all tasks; give one share for all")


def viewed(
    data: PreparedData,
    tasks: Sequence[str] | None,
    noise: LabelNoise | None,
    train_fraction: float | Mapping[str, float] = 1.0,
) -> PreparedData:
    """Return a view of the data; no samples are read or copied for it.

    Args:
        tasks: The tasks to keep, in this order; None keeps all.
        train_fraction: The share of the training samples, of all tasks or by task.

    Raises:
        UserError: If the data cannot be viewed like this.
    """
    if tasks is not None:
        suite = narrowed(data.suite, tasks)
        kind = _SuiteViewOnDisk if data.on_disk else _SuiteView
        data = replace(data, suite=suite, splits=kind(data.splits, suite.streams))

    if train_fraction != 1:
        from mtlscale.data.sampling.train_fraction import TrainFraction

        check_train_fraction(data.suite, train_fraction)
        data = replace(data, train_fraction=TrainFraction(train_fraction, data.suite, _ids(data)))

    if noise is None:
        return data
    from mtlscale.data.sampling.label_noise import NoisyLabels

    check_noise(data.suite, noise, data.manifest.target_shapes if data.on_disk else {})
    return replace(data, noise=NoisyLabels(noise, data.suite.tasks, _ids(data)))


def _ids(data: PreparedData) -> Callable[[str], list[str]]:
    """Return a function from a stream to the ids of its training samples, in their order."""
    from mtlscale.data.readers.shards import ids_of
    from mtlscale.data.remote import origin_of

    def ids(stream: str) -> list[str]:
        if not data.on_disk:  # no files, hence no ids
            return [str(index) for index in range(len(data.splits["train"][stream]))]
        files = [shard.path for shard in data.manifest.shards("train", stream)]
        return ids_of(data.folder, files, origin_of(data.folder))

    return ids


class _SuiteView(Mapping[str, Mapping[str, "Samples"]]):
    """The splits with the streams and tasks of a narrower suite."""

    def __init__(self, splits: Mapping[str, Mapping[str, Samples]], streams: Mapping[str, Sequence[str]]) -> None:
        self._splits, self._streams = splits, streams

    def __getitem__(self, split: str) -> Mapping[str, Samples]:
        from mtlscale.data.sampling.label_noise import with_targets

        streams_of_split = self._splits[split]
        return {
            stream: with_targets(
                streams_of_split[stream], {task: streams_of_split[stream].targets[task] for task in tasks}
            )
            for stream, tasks in self._streams.items()
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)


class _SuiteViewOnDisk(_SuiteView, SplitsOnDisk):
    """The splits with the streams and tasks of a narrower suite, for splits in files."""


def _classes(task: Task) -> int:
    return max(2, task.outputs)


def _check_known(where: str, names: Sequence[str], known_names: list[str]) -> None:
    for name in names:
        if name not in known_names:
            raise UserError(f"{where}: unknown task {name!r}: {nearest(name, known_names)}")
    if len(set(names)) < len(names):
        raise UserError(f"{where}: a task is named twice; name it once")
