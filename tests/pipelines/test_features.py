"""Random splits, one-against-rest tasks and PCA of the pipelines of feature vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlscale.config import UserError
from pipelines._steps.features import one_against_rest, principal_components, random_split, standardise


def ids(count: int) -> list[str]:
    return [f"t/{row}" for row in range(count)]


@given(count=st.integers(10, 300), classes=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_shares_are_exact_in_all_and_within_one_in_every_class(count: int, classes: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, count)
    rows = random_split("x", "t", ids(count), str(seed), labels)
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(count))
    tests = int(0.2 * count + 0.5)
    assert len(rows["test"]) == tests and len(rows["val"]) == int(0.2 * (count - tests) + 0.5)
    for label in np.unique(labels):
        size = (labels == label).sum()
        assert (labels[rows["train"]] == label).any()
        assert abs((labels[rows["test"]] == label).sum() - 0.2 * size) <= 1.5


def test_a_split_depends_on_ids_and_salt_and_not_on_the_order() -> None:
    names = np.array(ids(100))
    rows = random_split("x", "t", names, "0")
    shuffled = np.random.default_rng(0).permutation(100)
    again = random_split("x", "t", names[shuffled], "0")
    other = random_split("x", "t", names, "1")
    for split in rows:
        assert set(names[rows[split]]) == set(names[shuffled][again[split]])
        assert set(rows[split]) != set(other[split])
    # two splits share about as many test samples as chance has it
    assert 0 < len(set(rows["test"]) & set(other["test"])) < 12


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_task_with_too_few_samples_is_named(count: int) -> None:
    with pytest.raises(UserError, match=f"x: task t has {count} samples, too few for 20% test and 20% of the rest"):
        random_split("x", "t", ids(count), "0")


def test_four_samples_are_enough() -> None:
    rows = random_split("x", "t", ids(4), "0")
    assert {split: len(found) for split, found in rows.items()} == {"test": 1, "val": 1, "train": 2}


def test_standardising_looks_at_train_alone() -> None:
    features = np.random.default_rng(0).normal(3.0, 2.0, (50, 3))
    features[:, 2] = 1.0
    train = np.arange(30)
    scaled = standardise(features, train)
    np.testing.assert_allclose(scaled[train].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled[train][:, :2].std(0), 1)
    assert not scaled[:, 2].any()
    features[40:] += 100
    np.testing.assert_allclose(standardise(features, train)[:40], scaled[:40])


def test_principal_components_are_those_of_train() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 5)) * [5, 3, 1, 0.5, 0.1]
    train = np.arange(40)
    found = principal_components("x", features, train, 2)
    centred = features - features[train].mean(0)
    _, _, directions = np.linalg.svd(centred[train], full_matrices=False)
    np.testing.assert_allclose(np.abs(found), np.abs(centred @ directions[:2].T), atol=1e-4)
    with pytest.raises(UserError, match="x: 6 components are more than 5, the smaller of training samples and"):
        principal_components("x", features, train, 6)


def test_one_against_rest_uses_every_sample_once() -> None:
    labels = np.repeat(np.arange(3), 20)
    features = np.random.default_rng(0).normal(size=(60, 4))
    options = {"positives": 10, "negatives": 5, "components": 2, "split": 0}
    tasks = one_against_rest("x", features, labels, {"a": 0, "b": 1, "c": 2}, **options)  # type: ignore[arg-type]
    everything = np.concatenate([vectors.ids for vectors in tasks.values()])
    assert len(everything) == len(set(everything)) == 60
    for task, label in (("a", 0), ("b", 1), ("c", 2)):
        vectors = tasks[task]
        assert vectors.features.shape == (20, 2) and vectors.targets.sum() == 10
        np.testing.assert_array_equal(labels[vectors.ids.astype(int)] == label, vectors.targets)
    other = one_against_rest("x", features, labels, {"a": 0, "b": 1, "c": 2}, **{**options, "split": 1})  # type: ignore[arg-type]
    assert set(other["a"].ids) == set(tasks["a"].ids)  # the same samples, split in another way
    assert set(other["a"].rows["test"]) != set(tasks["a"].rows["test"])
    with pytest.raises(UserError, match="x: there are 20 samples of a, its own task and the others need 21"):
        one_against_rest("x", features, labels, {"a": 0, "b": 1}, **{**options, "positives": 16})  # type: ignore[arg-type]
