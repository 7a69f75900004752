"""The floors of trees: what scikit-learn's models predict, by tensors, for numbers, categories and molecules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import ensemble

from mtlscale.architectures.floors.boosting import Boosting
from mtlscale.architectures.floors.forest import Forest
from mtlscale.config import MISSING_CLASS, Task, TaskSuite, UserError
from mtlscale.data import Batch, Samples

RNG = np.random.default_rng(0)
COUNT, TRAIN = 400, 300
CATEGORIES = (0, 40, 0, 6, 300)  # the last has more codes than a histogram


def _inputs() -> torch.Tensor:
    columns = [RNG.integers(1, count, COUNT) if count else RNG.normal(size=COUNT) for count in CATEGORIES]
    inputs = torch.from_numpy(np.stack(columns, 1)).float()
    inputs[TRAIN:, 3] = 0  # unknown
    inputs[TRAIN : TRAIN + 50, 1] = 39
    inputs[:TRAIN, 1] %= 38  # codes that only test has
    return inputs


INPUTS = _inputs()
SCORE = INPUTS[:, 0] + (INPUTS[:, 1] % 3) + (INPUTS[:, 3] % 2) * INPUTS[:, 2]
NUMBERS = torch.stack([SCORE, INPUTS[:, 2] ** 2], 1)
CLASSES = (SCORE > 1).long() + (SCORE > 2).long()
TARGETS = {
    "three": CLASSES,
    "two": (SCORE > 1).long() * 2,  # of three classes, the second is in no sample
    "yes": (SCORE > 1).float()[:, None],
    "tags": (NUMBERS > 1).float(),
    "soft": torch.nn.functional.one_hot(CLASSES, 3) * 0.8 + 0.2 / 3,
    "number": SCORE,
    "numbers": NUMBERS,
}
TASKS = (
    Task(name="three", loss="cross_entropy", outputs=3, metrics=("error",)),
    Task(name="two", loss="cross_entropy", outputs=3, metrics=("error",)),
    Task(name="yes", loss="bce", outputs=1, metrics=("error",)),
    Task(name="tags", loss="bce", outputs=2, metrics=("error",)),
    Task(name="soft", loss="soft_cross_entropy", outputs=3, metrics=("soft_error",)),
    Task(name="number", loss="l1", outputs=1, metrics=("mae",)),
    Task(name="numbers", loss="mse", outputs=2, metrics=("rmse",)),
)


class Data:
    """The first rows as training samples, in blocks."""

    def __init__(self, **targets: torch.Tensor) -> None:
        self.all = {**TARGETS, **targets}

    def targets(self) -> dict[str, torch.Tensor]:
        return {name: values[:TRAIN] for name, values in self.all.items()}

    def samples(self, split: str, stream: str, most: int | None = None) -> Iterator[Samples]:
        assert split == "train"  # nothing is chosen on validation
        for part in (slice(0, 120), slice(120, TRAIN)):
            yield Samples(INPUTS[part], {name: values[part] for name, values in self.all.items()})


def _suite(tasks: tuple[Task, ...] = TASKS, **more: Any) -> TaskSuite:
    settings = {"input_kind": "vector", "input_shape": (5,), "categories": CATEGORIES, **more}
    return TaskSuite(name="s", tasks=tasks, inputs="shared", **settings)


def _built(floor: Forest | Boosting, suite: TaskSuite | None = None) -> Any:
    torch.manual_seed(3)
    return floor.build(suite or _suite(), lambda: pytest.fail("an encoder is built"), 0.0)


def _fitted(floor: Forest | Boosting, **targets: torch.Tensor) -> Any:
    model = _built(floor)
    model.from_data(Data(**targets))
    return model


def _predicted(model: Any, inputs: torch.Tensor = INPUTS) -> dict[str, np.ndarray]:
    outputs = model(Batch("all", Samples(inputs, TARGETS), len(inputs)))
    return {name: values.detach().numpy() for name, values in outputs.predictions.items()}


@pytest.fixture(scope="module")
def forest() -> Any:
    return _fitted(Forest())


@pytest.fixture(scope="module")
def boosting() -> Any:
    return _fitted(Boosting())


def _shares(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_a_forest_predicts_what_scikit_learn_does(forest: Any) -> None:
    found, rows = _predicted(forest), INPUTS.numpy()
    for index, task in enumerate(TASKS):
        cls = (
            ensemble.ExtraTreesClassifier
            if task.name in ("three", "two", "yes", "tags")
            else ensemble.ExtraTreesRegressor
        )
        labels = TARGETS[task.name].numpy().squeeze()
        labels = labels.astype(int) if cls is ensemble.ExtraTreesClassifier else labels
        model = cls(random_state=forest.seed + index).fit(rows[:TRAIN], labels[:TRAIN])
        if task.name == "three":
            wanted, ours = model.predict_proba(rows), _shares(found["three"])
        elif task.name == "two":
            wanted, ours = model.predict_proba(rows), _shares(found["two"])[:, [0, 2]]
        elif task.loss == "bce":
            shares = model.predict_proba(rows)
            shares = np.stack([share[:, 1] for share in shares] if isinstance(shares, list) else [shares[:, 1]], 1)
            wanted, ours = shares, 1 / (1 + np.exp(-found[task.name]))
        else:
            wanted = model.predict(rows).reshape(COUNT, -1)
            ours = np.exp(found["soft"]) if task.name == "soft" else found[task.name]
        np.testing.assert_allclose(ours, wanted, atol=2e-5, err_msg=task.name)


def test_boosting_predicts_what_scikit_learn_does_with_its_categories(boosting: Any) -> None:
    found, rows = _predicted(boosting), INPUTS.numpy()
    coded = [1, 3]
    for index, task in enumerate(TASKS):
        labels = TARGETS[task.name].numpy().reshape(COUNT, -1)
        settings = {"categorical_features": coded, "random_state": boosting.seed + index}
        if task.loss == "cross_entropy":
            model = ensemble.HistGradientBoostingClassifier(**settings).fit(rows[:TRAIN], labels[:TRAIN, 0])
            wanted, ours = model.predict_proba(rows), _shares(found[task.name])[:, model.classes_]
        elif task.loss == "bce":
            models = [
                ensemble.HistGradientBoostingClassifier(**settings).fit(rows[:TRAIN], column[:TRAIN])
                for column in labels.T
            ]
            wanted, ours = np.stack([model.decision_function(rows) for model in models], 1), found[task.name]
        elif task.name == "soft":
            assert (found["soft"][:TRAIN].argmax(1) == CLASSES[:TRAIN].numpy()).mean() > 0.95
            continue
        else:
            models = [
                ensemble.HistGradientBoostingRegressor(**settings).fit(rows[:TRAIN], column[:TRAIN])
                for column in labels.T
            ]
            wanted, ours = np.stack([model.predict(rows) for model in models], 1), found[task.name]
        np.testing.assert_allclose(ours, wanted, atol=2e-5, err_msg=task.name)


@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_the_state_is_all_that_a_fresh_module_needs(kind: str, request: pytest.FixtureRequest) -> None:
    """As resumed runs and exported models do: the sizes of the trees are those of the data."""
    fitted = request.getfixturevalue(kind)
    fresh = _built(Forest() if kind == "forest" else Boosting())
    fresh.load_state_dict(fitted.state_dict())
    expected, found = _predicted(fitted), _predicted(fresh)
    assert all(np.array_equal(found[name], values) for name, values in expected.items())
    assert fresh.extra_parameter_count() == fitted.extra_parameter_count() > 1000


@pytest.mark.parametrize("floor", [Forest(trees=10), Boosting(rounds=10)], ids=lambda floor: floor.name)
def test_the_seed_decides_and_not_the_number_of_threads(floor: Any) -> None:
    first = _fitted(floor).state_dict()
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        again = _fitted(floor).state_dict()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first[name], value) for name, value in again.items())
    if floor.name == "forest":  # so few samples leave boosting nothing to draw
        torch.manual_seed(4)
        other = floor.build(_suite(), lambda: None, 0.0)
        other.from_data(Data())
        assert not torch.equal(first["value_leaf0"], other.state_dict()["value_leaf0"])


@pytest.mark.parametrize("floor", [Forest(trees=10), Boosting(rounds=50)], ids=lambda floor: floor.name)
def test_missing_labels_count_for_nothing(floor: Any) -> None:
    gaps = torch.from_numpy(RNG.random(COUNT) < 0.5)
    wrong = {
        "three": torch.where(gaps, MISSING_CLASS, CLASSES),
        "number": torch.where(gaps, torch.nan, SCORE),
        "tags": torch.where(gaps[:, None], torch.nan, TARGETS["tags"]),
        "two": torch.full((COUNT,), MISSING_CLASS),
        "yes": torch.ones(COUNT, 1),
    }
    found = _predicted(_fitted(floor, **wrong))
    assert all(np.isfinite(values).all() for values in found.values())
    known = ~gaps[:TRAIN].numpy()
    assert (found["three"][:TRAIN].argmax(1) == CLASSES[:TRAIN].numpy())[known].mean() > 0.9
    assert np.ptp(found["two"], axis=0).max() == 0 and (found["yes"] > 13).all()


@pytest.mark.parametrize("floor", [Forest(), Boosting()], ids=lambda floor: floor.name)
@pytest.mark.parametrize(
    ("kind", "shape", "what"), [("tokens", (12,), "tokens"), ("image", (3, 8, 8), "images")], ids=["tokens", "images"]
)
def test_words_and_images_are_refused_by_name(floor: Any, kind: str, shape: tuple[int, ...], what: str) -> None:
    suite = _suite(input_kind=kind, input_shape=shape, categories=(), vocabulary_size=50)
    with pytest.raises(
        UserError, match=f"{floor.name} reads numbers, categories and molecules, s has {what}; leave it"
    ):
        _built(floor, suite)
