"""Forest: scikit-learn's extremely randomised trees, which whoever has a table tries before a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.floors._regressions import Examples
from mtlscale.architectures.floors._trees import RARE, Array, Tree, TreesModule
from mtlscale.config import Task, TaskSuite, knob
from mtlscale.encoders import EncoderModule

_CLASSES = ("cross_entropy", "bce")
_VARIANTS = ("extra_trees", "random_forest")


class ForestModule(TreesModule):
    """A forest for every task: means of the leaves' class shares or numbers."""

    reader = "forest"

    def __init__(self, suite: TaskSuite, settings: Forest) -> None:
        super().__init__(suite, settings.most_rows)
        self.settings = settings

    def linked(self, task: Task, sums: Tensor) -> Tensor:
        if task.loss == "bce":
            return sums.logit(RARE)
        return sums.clamp(min=RARE).log() if task.loss in ("cross_entropy", "soft_cross_entropy") else sums

    def grown(self, task: Task, examples: Examples, seed: int) -> Sequence[Tree]:
        from sklearn import ensemble

        prefix = "ExtraTrees" if self.settings.variant == "extra_trees" else "RandomForest"
        cls = getattr(ensemble, f"{prefix}{'Classifier' if task.loss in _CLASSES else 'Regressor'}")
        labels = examples.labels if task.loss == "cross_entropy" else examples.labels.reshape(-1, task.outputs)
        labels = (labels > 0.5).astype(int) if task.loss == "bce" else labels
        model = cls(
            self.settings.trees,
            min_samples_leaf=self.settings.leaf,
            n_jobs=torch.get_num_threads(),
            random_state=seed,
        )
        model.fit(examples.rows, labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels)

        trees = []
        for estimator in model.estimators_:
            grown = estimator.tree_
            leaf = _values(task, grown.value, model) / self.settings.trees
            column = np.where(grown.children_left < 0, -1, grown.feature)
            trees.append(Tree(column, grown.threshold, grown.children_right, leaf, grown.max_depth))
        return trees


def _values(task: Task, value: Array, model: object) -> Array:
    """Return the values [nodes, outputs] of nodes from scikit-learn's [nodes, outputs, classes]."""
    if task.loss not in _CLASSES:
        return value[:, :, 0]
    value = value / value.sum(-1, keepdims=True)
    classes = getattr(model, "classes_")  # noqa: B009 (of classifiers alone)
    if task.loss == "cross_entropy":
        shares = np.zeros((len(value), task.outputs))
        shares[:, classes] = value[:, 0]
        return shares
    of_outputs = classes if isinstance(classes, list) else [classes]
    return np.stack([value[:, output, : len(known)] @ (known == 1) for output, known in enumerate(of_outputs)], axis=1)


class Forest(Architecture):
    """Forest: one of scikit-learn's for every task, with its defaults, on the columns as they are.

    Extremely randomised trees (or a random forest) predict the mean of the leaves' class shares, or of their numbers. A
    code of a category is a number to them. Molecules of a table are counts of their parts (a circular fingerprint). Of
    large data the forest reads `most_rows` training samples, spread evenly, because full-grown trees have a leaf for
    nearly every sample. It is computed before the first step, with the threads of the run; its seed is the
    run's. Training does not move it.
    """

    name: ClassVar[str] = "forest"
    source: ClassVar[str] = "own floor; Geurts, Ernst & Wehenkel, Machine Learning 2006, by scikit-learn"
    fitted: ClassVar[bool] = True

    trees: int = knob(100, low=1, help="trees of a task")
    leaf: int = knob(1, low=1, help="fewest training samples of a leaf")
    variant: str = knob(
        "extra_trees", choices=_VARIANTS, help="random thresholds, or the best ones on bootstrap samples"
    )
    most_rows: int = knob(20_000, low=1, help="training samples that it reads, at most")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return ForestModule(suite, self)
