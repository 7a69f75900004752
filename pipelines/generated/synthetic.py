"""TOMATO's synthetic data: tasks that differ in a few topics only, with the planted structure beside them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import Task, TaskSuite, UserError, knob
from pipelines._steps.features import Vectors, lists, random_split, vector_tables
from pipelines.contract import Pipeline, PrepareContext, Prepared

TOPIC_WIDTH = 1.0  # σ_topic
SPECIAL_SCALE = 0.5  # standard deviation of w^s_kt
SINES, SINE_SCALE = 5, 0.01
TOPICS = "topics.parquet"
METRICS = ("soft_error", "cross_entropy")


class Synthetic(Pipeline):
    """TOMATO's synthetic set: soft labels, linear in the input within a topic; all but a few tasks share the weights.

    The order of operations is that of the authors' code. `suite.extras["special"]` [K, T] says which task differs in
    which topic; `topics.parquet` has every sample's topic weights [K].
    """

    name: ClassVar[str] = "synthetic"
    source: ClassVar[str] = "Zhang & Lee, CIKM 2020, and the authors' code"
    needs_source: ClassVar[bool] = False
    delta: ClassVar[tuple[str, ...]] = ("soft_error",)

    features: int = knob(64, low=1, help="size of the input d")
    classes: int = knob(5, low=2, help="size of the label distribution p")
    tasks: int = knob(12, low=1, help="number of tasks T")
    samples: int = knob(2000, low=4, help="samples of each task N_t, in all splits")
    topics: int = knob(2, low=1, help="number of topics K")
    special: int = knob(2, low=0, help="tasks per topic with weights of their own, at most T")
    sign: int = knob(1, choices=(1, -1), help="1 as published: the farthest topic core wins; -1: the nearest")
    seed: int = knob(0, low=0, help="of the data")
    split: int = knob(0, low=0, help="which random split")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        if self.special > self.tasks:
            raise UserError(f"synthetic: special = {self.special} is more than the {self.tasks} tasks there are")

        rng = np.random.default_rng(self.seed)
        cores = rng.normal(size=(self.topics, self.features))
        common = rng.normal(size=(self.features, self.classes))

        special = np.zeros((self.topics, self.tasks), dtype=bool)
        for topic in special:
            topic[rng.choice(self.tasks, self.special, replace=False)] = True
        shape = (self.topics, self.tasks, self.features, self.classes)
        weights = common + rng.normal(scale=SPECIAL_SCALE, size=shape) * special[..., None, None]
        sines = rng.normal(scale=SINE_SCALE, size=(2, SINES))

        samples, ids, topics = {}, [], []
        for task in range(self.tasks):
            inputs = rng.normal(size=(self.samples, self.features))
            distances = np.square(inputs[:, None] - cores).sum(-1)
            mixture = _softmax(self.sign * distances / TOPIC_WIDTH**2)
            scores = np.einsum("nk,nd,kdp->np", mixture, inputs, weights[:, task], optimize=True)
            waves = sum(np.sin(alpha * scores + beta) for alpha, beta in sines.T)

            labels = _softmax(scores + waves + rng.normal(size=scores.shape))
            name = f"task{task:02d}"
            names = np.array([f"{name}/{row:06d}" for row in range(self.samples)])
            rows = random_split(self.name, name, names, f"{self.name}/{self.split}")
            samples[name] = Vectors(names, inputs, labels, rows)
            ids.append(names)
            topics.append(mixture)

        target_shape: tuple[int, ...] = (self.classes,)

        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=name, loss="soft_cross_entropy", outputs=self.classes, metrics=METRICS) for name in samples
            ),
            inputs="per_task",
            input_kind="vector",
            input_shape=(self.features,),
            extras={"special": special.tolist()},
        )

        return Prepared(
            suite,
            vector_tables(samples),
            target_shapes=dict.fromkeys(samples, target_shape),
            extra={TOPICS: pa.table({"id": np.concatenate(ids), "weights": lists(np.concatenate(topics))})},
        )


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
