"""Learned trees: where modules are drawn, which seeds agree, and what the pictures say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.records import PhaseCost, RunRecord
from mtlscale.report import write_report
from mtlscale.report.charts.chart import ChartText, Dots, Line
from mtlscale.report.structures.trees import leaf_lines, learned, tree_chart, tree_layout

Make = Callable[..., RunRecord]
SPLIT = [[0, 0, 0], [0, 1, 0], [0, 1, 2]]  # b leaves after the first stage, c after the second


def with_tree(record: Make, seed: int, tree: list[list[int]], *phases: PhaseCost, method: str = "conal") -> RunRecord:
    structure = {"tree": tree, "tasks": ["a", "b", "c"], "stage_parameters": [1_500, 20_000, 3_000_000]}
    test = {task: {"accuracy": 90.0} for task in "abc"}
    return record(method, seed, test, structure=structure, phases=list(phases), run_id=f"{method}-{seed}")


def test_modules_stand_by_stage_and_their_edges_follow_the_tasks() -> None:
    layout = tree_layout(SPLIT)
    assert [(node.stage, node.tasks) for node in layout.nodes] == [
        (0, (0, 1, 2)),
        (1, (0, 1, 2)),
        (2, (0, 2)),
        (2, (1,)),
        (3, (0,)),
        (3, (2,)),
        (3, (1,)),
    ]
    assert layout.edges == ((0, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6))
    heights = [node.y for node in layout.leaves]
    assert heights == sorted(heights) and len(set(heights)) == 3


def test_tasks_that_parted_do_not_meet_again() -> None:
    """A node's number counts within its branch alone."""
    layout = tree_layout([[0, 1], [0, 0]])
    assert [node.tasks for node in layout.leaves] == [(0,), (1,)]


def test_without_stages_the_input_is_the_leaf_of_all() -> None:
    layout = tree_layout([], ["a", "b"])
    assert (
        [(node.stage, node.tasks) for node in layout.nodes]
        == [(0, (0, 1))]
        == [(node.stage, node.tasks) for node in layout.leaves]
    )


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    tasks, stages = draw(st.integers(1, 40)), draw(st.integers(1, 8))
    nodes = st.lists(st.integers(0, 4), min_size=tasks, max_size=tasks)
    return draw(st.lists(nodes, min_size=stages, max_size=stages))


@given(trees())
def test_every_task_ends_in_one_leaf_and_edges_join_adjacent_stages(tree: list[list[int]]) -> None:
    tasks = list(range(len(tree[0])))
    layout = tree_layout(tree, [f"a rather long name of task {task}" for task in tasks])
    assert sorted(task for leaf in layout.leaves for task in leaf.tasks) == tasks
    for stage in range(len(tree) + 1):
        assert sorted(task for node in layout.nodes if node.stage == stage for task in node.tasks) == tasks
    for start, end in layout.edges:
        above, below = layout.nodes[start], layout.nodes[end]
        assert below.stage == above.stage + 1 and set(below.tasks) <= set(above.tasks)
    assert sorted(end for _, end in layout.edges) == list(range(1, len(layout.nodes)))  # one parent each
    # No two edges between the same stages cross, and nothing is drawn outside.
    for stage in range(len(tree)):
        ends = [(layout.nodes[a].y, layout.nodes[b].y) for a, b in layout.edges if layout.nodes[a].stage == stage]
        assert ends == sorted(ends)
    assert all(0 <= node.y <= layout.height for node in layout.nodes)


def test_seeds_are_counted_by_what_their_trees_share(record: Make) -> None:
    renumbered = [[7, 7, 7], [3, 5, 3], [1, 1, 0]]
    runs = [with_tree(record, 0, SPLIT), with_tree(record, 1, renumbered), with_tree(record, 2, [[0, 0, 0]] * 3)]
    runs.append(with_tree(record, 3, SPLIT).model_copy(update={"status": "failed"}))
    most, least = learned(runs)["conal"]
    assert (most.title, least.title) == ("conal: 2 of 3 seeds (0, 1)", "conal: 1 of 3 seeds (2)")
    assert learned([record("equal", 0, {"a": {"accuracy": 1.0}})]) == {}


def test_seeds_of_one_search_do_not_count_as_agreement(record: Make) -> None:
    searches = [PhaseCost(name="search", phase_id=key, epochs=1, steps=1, seconds=1.0) for key in ("x", "x", "y")]
    of_one = [with_tree(record, seed, SPLIT, searches[0]) for seed in range(2)]
    assert learned(of_one)["conal"][0].title == "conal: one search, 2 of 2 seeds"
    of_two = [*of_one, with_tree(record, 2, [[0, 0, 0]] * 3, searches[2])]
    assert [tree.title for tree in learned(of_two)["conal"]] == [
        "conal: 1 of 2 searches, 2 of 3 seeds",
        "conal: 1 of 2 searches, 1 of 3 seeds",
    ]


def test_the_chart_has_every_module_edge_and_name(record: Make) -> None:
    [one] = learned([with_tree(record, 0, SPLIT)])["conal"]
    chart = tree_chart(one)
    [panel] = chart.panels
    [lines], [nodes] = panel.of(Line), panel.of(Dots)
    assert list(panel.x.ticks.values()) == ["input", "stage 1\n1.5 k", "stage 2\n20 k", "stage 3\n3 M"]
    assert chart.words == "Modules of each stage: 1, 2, 3. At the end a | b | c."
    assert nodes.inside == ["3", "3", "2", "1", "1", "1", "1"] and nodes.names[2] == "a, c"
    assert len(lines.x) == 3 * 6 and lines.x[:3] == [0, 1, None]
    assert {text.text for text in panel.of(ChartText)} == {"a", "b", "c"}


def test_forty_tasks_that_share_everything_are_listed_once() -> None:
    names = [f"attribute number {number} of a face" for number in range(40)]
    lines = leaf_lines(names)
    assert max(map(len, lines)) <= 46 and len(lines) <= 20
    layout = tree_layout([[0] * 40], names)
    assert len(layout.leaves) == 1 and layout.height >= len(lines)


@pytest.mark.parametrize("tree", [[], "x", [[0, 0], [0]], None])
def test_what_is_no_tree_is_not_drawn(record: Make, tree: object) -> None:
    assert learned([record("conal", 0, {"a": {"accuracy": 90.0}}, structure={"tree": tree})]) == {}


def test_the_report_has_the_trees_among_its_pictures(record: Make, tmp_path: Path) -> None:
    files = write_report([with_tree(record, 0, SPLIT)], tmp_path, "test")
    assert files["tree_conal"].read_bytes().startswith(b"\x89PNG")
    assert "Learned tree, conal, seed 0" in files["html"].read_text()
