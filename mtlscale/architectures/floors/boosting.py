"""Boosting: scikit-learn's histogram gradient boosting, the usual best of methods for tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.floors._regressions import Examples
from mtlscale.architectures.floors._trees import RARE, Array, Tree, TreesModule
from mtlscale.config import Task, TaskSuite, knob
from mtlscale.encoders import EncoderModule

_MOST_CODES = 255  # codes of a category in a histogram; columns with more are read as numbers


class BoostingModule(TreesModule):
    """Boosted trees for every task: sums of the leaves' logits or numbers."""

    reader = "boosting"

    def __init__(self, suite: TaskSuite, settings: Boosting) -> None:
        super().__init__(suite)
        self.settings = settings
        counts = suite.categories if self.molecules is None else ()
        self.coded = [column for column, count in enumerate(counts) if 0 < count <= _MOST_CODES]

    def grown(self, task: Task, examples: Examples, seed: int) -> Sequence[Tree]:
        rows, labels = examples.rows, examples.labels
        if task.loss == "cross_entropy":
            return self._of_classes(task, rows, labels, seed)
        labels = labels.reshape(len(labels), task.outputs)
        if task.loss != "soft_cross_entropy":
            of_outputs = (self._of_output(rows, column, task, output, seed) for output, column in enumerate(labels.T))
            return [tree for trees in of_outputs for tree in trees]

        # A soft label becomes one sample per class, with the weight of that class.
        classes, weights = np.tile(np.arange(task.outputs), len(labels)), labels.reshape(-1)
        has_weight = weights > 1e-9
        sources = np.repeat(np.arange(len(labels)), task.outputs)[has_weight]
        return self._of_classes(task, rows[sources], classes[has_weight], seed, weights[has_weight])

    def _of_classes(
        self, task: Task, rows: Array, labels: Array, seed: int, weights: Array | None = None
    ) -> list[Tree]:
        present = np.unique(labels)
        base = np.full(task.outputs, np.log(RARE))
        base[present] = 0.0
        if len(present) == 1:
            return [Tree.single_leaf(base)]
        learned = present if len(present) > 2 else present[1:]  # of two classes, the second has all of the logit
        return [Tree.single_leaf(base), *self._boosted(rows, labels, "Classifier", learned, task, seed, weights)]

    def _of_output(self, rows: Array, labels: Array, task: Task, output: int, seed: int) -> list[Tree]:
        learned = np.array([output])
        if task.loss != "bce":
            return self._boosted(rows, labels, "Regressor", learned, task, seed)
        labels = (labels > 0.5).astype(int)
        if labels.min() < labels.max():
            return self._boosted(rows, labels, "Classifier", learned, task, seed)
        logit = np.log(RARE / (1 - RARE)) * (1 - 2 * labels[0])
        return [Tree.single_leaf(np.eye(task.outputs)[output] * logit)]

    def _boosted(
        self, rows: Array, labels: Array, kind: str, learned: Array, task: Task, seed: int, weights: Array | None = None
    ) -> list[Tree]:
        """Return the trees of a model, whose outputs are those of the task that are `learned`."""
        from sklearn import ensemble
        from threadpoolctl import threadpool_limits

        codes_of = {column: np.unique(rows[:, column].astype(int)) for column in self.coded}
        order = [*self.coded, *(column for column in range(rows.shape[1]) if column not in codes_of)]
        matrix = rows[:, order].astype(np.float64)
        for place, codes in enumerate(codes_of.values()):  # 0, 1, … as the model's own encoder has them
            matrix[:, place] = np.searchsorted(codes, matrix[:, place])

        # Of many samples scikit-learn holds some back to stop early, of each class, which one sample cannot be.
        rare = kind == "Classifier" and np.unique(labels, return_counts=True)[1].min() < 2
        model = getattr(ensemble, f"HistGradientBoosting{kind}")(
            max_iter=self.settings.rounds,
            learning_rate=self.settings.rate,
            categorical_features=list(range(len(codes_of))) or None,
            early_stopping=False if rare else "auto",
            random_state=seed,
        )
        with threadpool_limits(limits=torch.get_num_threads(), user_api="openmp"):
            model.fit(matrix, labels, sample_weight=weights)

        one_hot = np.eye(task.outputs)[learned]  # [learned, outputs]
        trees = [Tree.single_leaf(np.asarray(model._baseline_prediction).reshape(-1) @ one_hot)]
        for round_ in model._predictors:
            trees += [_tree(grown, order, codes_of, values) for grown, values in zip(round_, one_hot, strict=True)]
        return trees


def _tree(grown: Any, order: Sequence[int], known: dict[int, Array], values: Array) -> Tree:
    """Return a tree of scikit-learn's, with columns and codes as the inputs have them."""
    nodes, bits = grown.nodes, grown.raw_left_cat_bitsets
    column = np.where(nodes["is_leaf"], -1, np.asarray(order)[nodes["feature_idx"]])
    of_codes = (nodes["is_categorical"] > 0) & (column >= 0)

    most = max((int(codes[-1]) for codes in known.values()), default=0)
    goes_left = np.zeros((len(bits), most + 2), bool)
    for node in np.flatnonzero(of_codes):
        place, codes = nodes["bitset_idx"][node], known[int(column[node])]
        numbers = np.arange(len(codes))
        goes_left[place] = nodes["missing_go_to_left"][node]  # codes that training has not
        goes_left[place, codes] = (bits[place][numbers // 32] >> (numbers % 32).astype(np.uint32)) & 1

    threshold = np.where(of_codes, nodes["bitset_idx"].astype(float), nodes["num_threshold"])
    column = np.where(of_codes, column + len(order), column)
    leaf = nodes["value"][:, None] * values
    return Tree(column, threshold, nodes["right"].astype(int), leaf, int(nodes["depth"].max()), goes_left)


class Boosting(Architecture):
    """Boosting: scikit-learn's histogram gradient boosting for every task, with its defaults, on raw columns.

    Columns of categories are taken as such up to 255 codes, as numbers above. A task of several numbers or labels has a
    model for each of them. Molecules of a table are counts of their parts (a circular fingerprint). It is computed
    before the first step, with the threads of the run; its seed is the run's. Training does not move it.
    """

    name: ClassVar[str] = "boosting"
    source: ClassVar[str] = "own floor; Friedman, Annals of Statistics 2001, by scikit-learn (after LightGBM)"
    fitted: ClassVar[bool] = True

    rounds: int = knob(100, low=1, help="rounds of boosting, a tree of each class or number in every one")
    rate: float = knob(0.1, low=0.0, open_low=True, help="learning rate of a round")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return BoostingModule(suite, self)
