"""Tasks and task suites, which every pipeline describes and every architecture is built for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SPLITS = ("train", "val", "test")
LOSSES = ("cross_entropy", "soft_cross_entropy", "bce", "mse", "l1", "cosine", "welsch")
MISSING_CLASS = -1  # the label of a missing class; a missing number is NaN
UNKNOWN_CATEGORY = 0  # the code of a category that does not occur in training


@dataclass(frozen=True, kw_only=True)
class Task:
    """The definition of one prediction target: its loss, its metrics and the size of its prediction.

    The first metric is the main one.
    """

    name: str
    loss: str  # a name in LOSSES
    outputs: int  # size of the prediction: classes, or numbers
    metrics: tuple[str, ...]  # names in mtlscale.metrics, or of plugins
    classes: tuple[str, ...] = ()
    per: Literal["sample", "token"] = "sample"  # token: labels [L], one for every position, some of them missing
    group: int | None = None  # the input column whose values group samples, such as the user, for metrics in groups
    scale: float = 1.0  # what metrics multiply labels and predictions by, where labels were divided by it


@dataclass(frozen=True, kw_only=True)
class TaskSuite:
    """The tasks of one data set and the shape of its inputs.

    A *stream* is a source of batches. With `inputs="per_task"` every task has its own stream of the same name; with
    `inputs="shared"` one stream, "all", carries the labels of every task.
    """

    name: str
    tasks: tuple[Task, ...]
    inputs: Literal["per_task", "shared"]
    input_kind: Literal["vector", "tokens", "image"]
    input_shape: tuple[int, ...]  # of one sample: (features,), (length,), (channels, height, width)
    vocabulary_size: int | None = None  # tokens only; id 0 is padding, id 1 an unknown word
    # Vectors of one dimension: how many codes each input column has (0, 1, …), 0 for a column of numbers. Empty: all
    # columns are numbers.
    categories: tuple[int, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    unlabelled: tuple[str, ...] = ()  # streams without any label, for objectives that look at them
    # The labelled source and the target, of a transfer between domains: its tasks have the source's samples in train
    # and val, the target's in test.
    domains: tuple[str, str] | tuple[()] = ()
    weighted: bool = False  # training losses of samples are multiplied by weights that come with them

    @property
    def per_token(self) -> bool:
        """Return whether tasks have a label for every token.

        Samples are sequences [L, ...] of at most `input_shape[0]` tokens then.
        """
        return any(task.per == "token" for task in self.tasks)

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        """The streams: name -> names of the tasks it has labels for."""
        names = tuple(task.name for task in self.tasks)
        labelled = {"all": names} if self.inputs == "shared" else {name: (name,) for name in names}
        return labelled | dict.fromkeys(self.unlabelled, ())
