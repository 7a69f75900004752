"""How many runs fit on the nodes of a cluster, and what is said where none does."""

from __future__ import annotations

import pytest

from mtlscale.config import ResourceSpec, UserError
from mtlscale.execution.placement import Amounts, NodeType, in_words, runs_at_once, workers_on


def cpus(*amounts: float) -> list[Amounts]:
    return [{"CPU": amount, "memory": 1e9} for amount in amounts]


@pytest.mark.parametrize(
    ("nodes", "resources", "expected"),
    [
        (cpus(4, 4, 4), ResourceSpec(workers=2), 6),
        (cpus(1, 1, 1), ResourceSpec(workers=2), 1),  # over two nodes
        (cpus(3, 3), ResourceSpec(cpus_per_worker=2), 2),  # six CPUs, and yet no third
        (cpus(1), ResourceSpec(cpus_per_worker=0.1), 10),  # 1 // 0.1 is 9
        (cpus(0.3), ResourceSpec(cpus_per_worker=0.1), 3),  # as is 0.3 // 0.1 only 2
        (cpus(4, 0), ResourceSpec(cpus_per_worker=0.5, workers=3), 2),
        ([{"CPU": 16, "GPU": 2}, {"CPU": 64}], ResourceSpec(gpus_per_worker=0.25), 8),
        ([{"CPU": 1, "GPU": 8}, {"CPU": 8}], ResourceSpec(gpus_per_worker=1), 1),
        (cpus(64), ResourceSpec(), 20),  # there are no more runs
    ],
)
def test_workers_are_packed_node_by_node(nodes: list[Amounts], resources: ResourceSpec, expected: int) -> None:
    assert runs_at_once(nodes, [], resources, 20) == expected


@pytest.mark.parametrize(
    ("nodes", "resources", "message"),
    [
        (cpus(1, 1), ResourceSpec(cpus_per_worker=2), "a worker needs 2 CPUs, but the largest node has 1 CPU;"),
        (cpus(1, 4), ResourceSpec(workers=6), "a run needs 6 workers of 1 CPU, but .* have room for 5;"),
        (
            cpus(8),
            ResourceSpec(gpus_per_worker=1),
            "needs 1 CPU and 1 GPU, but the largest node has 8 CPUs and 0 GPUs;",
        ),
        (
            [{"CPU": 64}, {"CPU": 2, "GPU": 1}],
            ResourceSpec(cpus_per_worker=4, gpus_per_worker=1),
            "needs 4 CPUs and 1 GPU, but the largest node has 2 CPUs and 1 GPU;",
        ),
        ([], ResourceSpec(), "the largest node has 0 CPUs"),
    ],
)
def test_what_fits_nowhere_is_refused_with_what_it_needs_and_what_there_is(
    nodes: list[Amounts], resources: ResourceSpec, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        runs_at_once(nodes, [], resources, 3)


def test_nodes_that_an_autoscaler_may_add_count() -> None:
    head, small, large = {"CPU": 0}, NodeType({"CPU": 2}, 3), NodeType({"CPU": 8, "GPU": 1}, 2)
    assert runs_at_once([head], [small, large], ResourceSpec(cpus_per_worker=2), 100) == 3 + 8
    assert runs_at_once([head], [small, large], ResourceSpec(gpus_per_worker=1, workers=2), 100) == 1
    assert runs_at_once([head], [NodeType({"CPU": 2}, -1)], ResourceSpec(workers=4), 100) == 100
    with pytest.raises(UserError, match="a worker needs 16 CPUs, but the largest node has 8 CPUs"):
        runs_at_once([head], [small, large], ResourceSpec(cpus_per_worker=16), 1)


def test_a_worker_that_needs_more_than_a_node_has_does_not_fit_there() -> None:
    assert workers_on({"CPU": 1.9999}, {"CPU": 2}) == 0 and workers_on({"CPU": 2}, {"CPU": 2, "GPU": 1}) == 0
    assert in_words({"CPU": 1, "GPU": 0.5}) == "1 CPU and 0.5 GPUs"
