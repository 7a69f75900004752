"""A transfer between two domains: where the labels of the target are, and what cannot be one."""

from __future__ import annotations

import numpy as np
import pytest

from mtlscale.config import UserError
from pipelines.domains._adaptation import TARGET, TASK, Domain, adaptation

CLASSES = ("cup", "lamp", "shoe")


def domain(name: str, labels: list[int]) -> Domain:
    ids = np.array([f"{name}/{row:02d}" for row in range(len(labels))])
    return Domain(name, ids, np.random.default_rng(0).normal(size=(len(labels), 2)), np.array(labels, int))


def test_labels_of_the_target_are_in_test_and_nowhere_else() -> None:
    prepared = adaptation("toy", CLASSES, domain("shop", [0, 1, 2] * 5), domain("street", [2, 1, 0]), 0.2, "toy")
    ids = {
        (split, stream): [str(id) for id in table["id"]]
        for split, streams in prepared.tables.items()
        for stream, table in streams.items()
    }
    assert len(ids["train", TASK]) == 12 and len(ids["val", TASK]) == 3
    assert all(id.startswith("shop/") for id in (*ids["train", TASK], *ids["val", TASK]))
    assert ids["test", TASK] == ["street/00", "street/01", "street/02"]
    assert len(ids["train", TARGET]) == 3 and not ids["val", TARGET] and not ids["test", TARGET]
    assert all(table[TARGET].column_names == ["id", "input"] for table in prepared.tables.values())
    assert prepared.suite.domains == ("shop", "street") and prepared.suite.unlabelled == (TARGET,)
    everything = [id for found in ids.values() for id in found]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ([0, 1, 2], [], "toy: the domain street has no image; put them there, or name another domain"),
        ([], [0, 1], "toy: the domain shop has no image"),
        ([0, 0, 0], [0, 1, 2, 2], "toy: street has classes that shop lacks: lamp, shoe; leave them out"),
    ],
)
def test_what_is_no_transfer(source: list[int], target: list[int], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        adaptation("toy", CLASSES, domain("shop", source), domain("street", target), 0.2, "toy")
