"""Linear: ridge or logistic regression, the floor that a network has to rise above to be worth its training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.fitted import FittedModule
from mtlscale.architectures.floors._regressions import Examples, fit
from mtlscale.architectures.hooks import LabelledData
from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs
from mtlscale.data.format.categories import OneHot
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.data.format.molecules import fingerprint
from mtlscale.encoders import EncoderModule

_SIDE = 16  # height and width of an image that is read as a whole
_PICTURES, _PIXELS = 512, 64  # for maps: number of images, and of positions in each


class LinearModule(FittedModule):
    """Linear predictors of the standardised inputs: weights [outputs, features] and offsets [outputs] per task."""

    def __init__(self, suite: TaskSuite, maps: bool, strengths: tuple[float, ...]) -> None:
        super().__init__(suite)
        self.suite, self.maps, self.strengths = suite, maps, strengths
        layout = GraphLayout.of(suite.extras)
        self.molecules = layout if layout is not None and layout.edges else None
        self.one_hot = OneHot(suite.categories) if suite.categories and self.molecules is None else None
        features = self._features(torch.zeros(1, *suite.input_shape)).shape[1]
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        for index, task in enumerate(suite.tasks):
            self.register_buffer(f"value{index}", torch.zeros(task.outputs, features))
            self.register_buffer(f"value_offset{index}", torch.zeros(task.outputs))

    def forward(self, batch: Batch) -> Outputs:
        broadcast_shape = (1, -1, *[1] * (2 if self.maps else 0))
        features = self._features(batch.inputs) * self.get_buffer("scale").reshape(broadcast_shape)

        if self.suite.input_kind == "tokens":
            features = functional.normalize(features, dim=1)
        else:
            features = features - (self.get_buffer("centre") * self.get_buffer("scale")).reshape(broadcast_shape)

        predictions = {}
        for name in batch.tasks:
            index = self.index(name)
            weights = self.get_buffer(f"value{index}").to(features)
            products = torch.einsum("bf...,of->bo...", features, weights)
            offsets = self.get_buffer(f"value_offset{index}").to(features).reshape(broadcast_shape)
            predictions[name] = self.with_graph(name, products + offsets)
        return Outputs(predictions)

    def _features(self, inputs: Tensor) -> Tensor:
        """Return features [B, F] of inputs; of maps [B, F, H, W]: colours, means around them, and the position."""
        if self.molecules is not None:
            return fingerprint(self.molecules, inputs).log1p()
        if self.one_hot is not None:
            return self.one_hot(inputs)

        if self.suite.input_kind == "tokens":
            counts = torch.zeros(len(inputs), self.suite.vocabulary_size or 1, device=inputs.device)
            counts.scatter_add_(1, inputs.long(), torch.ones(inputs.shape, device=inputs.device))
            counts[:, 0] = 0.0  # padding
            return counts.log1p()

        if not inputs.is_floating_point():  # pixels
            inputs = inputs.to(self.get_buffer("scale").dtype)

        if self.maps:
            height, width = inputs.shape[-2:]
            y = torch.linspace(-1, 1, height, device=inputs.device)[:, None].expand(height, width)
            x = torch.linspace(-1, 1, width, device=inputs.device)[None].expand(height, width)
            position = torch.stack([y, x, y * y, x * x, x * y]).to(inputs).expand(len(inputs), -1, -1, -1)
            around = functional.avg_pool2d(inputs, 9, stride=1, padding=4, count_include_pad=False)
            return torch.cat([inputs, around, position], dim=1)

        if inputs.ndim == 4 and max(inputs.shape[-2:]) > _SIDE:
            inputs = functional.adaptive_avg_pool2d(inputs, _SIDE)
        return inputs.flatten(1)

    # -- fitting ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def from_data(self, data: LabelledData) -> None:
        examples = {split: self._examples(data, split) for split in ("train", "val")}
        self._standardise(examples)
        for name, linear in fit(self.tasks, examples["train"], examples["val"], self.strengths).items():
            index = self.index(name)
            self.get_buffer(f"value{index}").copy_(torch.from_numpy(linear.weights))
            self.get_buffer(f"value_offset{index}").copy_(torch.from_numpy(linear.offsets))

    def _examples(self, data: LabelledData, split: Any) -> dict[str, Examples]:
        """Return the examples of each task; those of one stream have the same rows."""
        examples: dict[str, Examples] = {}
        for stream, tasks in self.suite.streams.items():
            rows: list[Any] = []
            labels: dict[str, list[Any]] = {name: [] for name in tasks}

            for samples in data.samples(split, stream, _PICTURES if self.maps else None) if tasks else ():
                features, targets = self._features(samples.inputs.cpu()), samples.targets
                positions = self._places(features) if self.maps else None
                rows.append(self._rows(features, positions))
                for name in tasks:
                    labels[name].append(_labels(self.tasks[name], targets[name].cpu(), positions))

            if rows:
                stacked = _stacked(rows)
                examples |= {name: Examples(stacked, np.concatenate(labels[name])) for name in tasks}

        return examples

    def _places(self, features: Tensor) -> Tensor:
        """Return the positions [pixels] of H W that are read: the same in every image, spread over it."""
        count = features.shape[-2] * features.shape[-1]
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        return order[:_PIXELS]

    def _rows(self, features: Tensor, where: Tensor | None) -> Any:
        if where is not None:
            return features.flatten(2)[:, :, where].movedim(1, -1).flatten(0, 1).double().numpy()
        if self.suite.input_kind == "tokens" or self.one_hot is not None or self.molecules is not None:
            from scipy import sparse

            return sparse.csr_array(features.numpy()).astype(np.float64)
        return features.double().numpy()

    def _standardise(self, found: dict[str, dict[str, Examples]]) -> None:
        """Standardise the rows by statistics of all training samples."""
        distinct = {id(examples.rows): examples.rows for examples in found["train"].values()}
        rows = _stacked(list(distinct.values()))
        # id -> (matrix, result); the matrix is kept so that no other gets its id.
        results: dict[int, tuple[Any, Any]] = {}

        if self.suite.input_kind == "tokens":
            from sklearn.preprocessing import normalize

            # Rows of words are weighted by how few documents have them, and brought to length 1.
            documents = np.asarray((rows > 0).sum(0)).reshape(-1)
            scale = np.log((1 + rows.shape[0]) / (1 + documents)) + 1.0
            centre = np.zeros_like(scale)
        elif self.molecules is not None:
            # Most parts are in few molecules: the penalty should not find them as large as the others.
            centre, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        elif self.one_hot is not None:
            centre, scale = np.zeros(self.one_hot.width), np.ones(self.one_hot.width)
            # One-hot columns stay 0 and 1; the others get mean 0 and variance 1.
            numbers = ~self.one_hot.codes
            centre[numbers], scale[numbers] = _moments(rows[:, numbers].toarray())
        else:
            centre, scale = _moments(rows)

        def standardised(matrix: Any) -> Any:
            if id(matrix) not in results:
                if self.suite.input_kind == "tokens":
                    scaled = normalize(matrix * scale)
                elif self.molecules is not None:
                    scaled = matrix
                elif self.one_hot is not None:
                    scaled = _shifted(matrix * scale, centre * scale, ~self.one_hot.codes)
                else:
                    scaled = (matrix - centre) * scale
                results[id(matrix)] = matrix, scaled
            return results[id(matrix)][1]

        for split in found.values():
            for name, examples in split.items():
                split[name] = Examples(standardised(examples.rows), examples.labels)
        self.get_buffer("centre").copy_(torch.from_numpy(centre))
        self.get_buffer("scale").copy_(torch.from_numpy(scale))


def _moments(rows: Any) -> tuple[Any, Any]:
    """Return the means of columns, and one over their deviations; 1 for a column that hardly moves."""
    spread = rows.std(0)
    return rows.mean(0), 1.0 / np.where(spread > 1e-9, spread, 1.0)


def _shifted(matrix: Any, offsets: Any, columns: Any) -> Any:
    """Return a sparse matrix less the offsets of some columns (a mask); the others stay sparse."""
    from scipy import sparse

    matrix = matrix.tocsr()  # a product with numbers is in coordinates, whose columns take minutes and gigabytes
    dense = sparse.csr_array(matrix[:, columns].toarray() - offsets[columns])
    order = np.argsort(np.concatenate([np.flatnonzero(columns), np.flatnonzero(~columns)]))
    return sparse.hstack([dense, matrix[:, ~columns]], format="csc")[:, order].tocsr()


def _labels(task: Task, target: Tensor, where: Tensor | None) -> Any:
    """Return labels as rows: [n] classes or [n, outputs] numbers."""
    if where is not None:
        target = target.reshape(len(target), -1, target.shape[-2] * target.shape[-1])[:, :, where].movedim(1, -1)
        target = target.flatten(0, 1)
        target = target.squeeze(-1) if task.loss == "cross_entropy" else target
        if task.loss == "cosine":  # a normal of length 0 is a missing label
            target = torch.where((target != 0).any(-1, keepdim=True), target, torch.nan)
    return target.double().numpy() if target.is_floating_point() else target.numpy()


def _stacked(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.vstack(parts, format="csr")


class Linear(Architecture):
    """Linear predictor: ridge regression of numbers, logistic regression of classes.

    It is the best on validation of several strengths of the penalty, for every task by itself or for all tasks of one
    kind together with an indicator of the task.

    Words enter as tf-idf, category codes as one-hot columns, molecules of a table as counts of their parts (a circular
    fingerprint), images as 16 x 16 means, maps position by position (colours, their means around, the position), of 512
    images. The predictor is computed before the first step with scikit-learn; training does not move it.
    """

    name: ClassVar[str] = "linear"
    source: ClassVar[str] = "own floor; regressions of scikit-learn"
    fitted: ClassVar[bool] = True

    strengths: tuple[float, ...] = knob(
        (0.01, 0.1, 1.0, 10.0), help="inverse strengths of the penalty to choose from on validation"
    )

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if suite.per_token:
            raise UserError(
                f"linear looks at whole samples, the tasks of {suite.name} are per token; set `floors` to constant, or "
                "frequent_tag"
            )
        return LinearModule(suite, encoder().spatial, tuple(float(value) for value in self.strengths))
