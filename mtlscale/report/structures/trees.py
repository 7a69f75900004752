"""Trees that searches learn: the tasks that go through each module, as a chart from the input to the tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import count_text
from mtlscale.report.charts.chart import Axis, Chart, ChartText, Dots, Line, Panel
from mtlscale.report.charts.colors import LineStyle
from mtlscale.report.stats.traces import shortened

Tree = Sequence[Sequence[int]]  # stage -> task -> node
MOST_TREES = 6  # of one method: those with the most seeds
_COLUMN = 1.15  # inches
_WIDE = 46  # characters of a line of task names
_ALL, _SOME, _ONE = "#2b3a55", "#4c78a8", "#9aa0a8"  # all, some or one of the tasks pass a node


@dataclass(frozen=True)
class Node:
    """The module of a stage (0: the input), the tasks that pass it, and its height: lines of names from the top."""

    stage: int
    tasks: tuple[int, ...]
    y: float


@dataclass(frozen=True)
class TreeLayout:
    """The positions of a tree's nodes and edges.

    Attributes:
        nodes: The input first, then stage by stage; the leaves are the nodes of the last stage.
        edges: The indices of two nodes of adjacent stages each.
        stages: The number of stages.
        height: Lines of names, one for every leaf at least.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    stages: int
    height: float

    @property
    def leaves(self) -> list[Node]:
        return [node for node in self.nodes if node.stage == self.stages]


@dataclass(frozen=True)
class Learned:
    """The tree of a method, with its seeds and the number of searches that found it, of all that were made."""

    method: str
    tree: tuple[tuple[int, ...], ...]
    tasks: tuple[str, ...]
    sizes: tuple[int, ...]  # parameters of a module of each stage; () where unknown
    seeds: tuple[int, ...]
    searches: int
    of_searches: int
    of_seeds: int

    @property
    def title(self) -> str:
        """The title with the seeds that have the tree.

        Seeds that share a search agree by themselves, and are not counted as if they had found the same.
        """
        if self.of_seeds == 1:
            return f"{self.method}, seed {self.seeds[0]}"
        if self.of_searches == self.of_seeds:
            return f"{self.method}: {len(self.seeds)} of {self.of_seeds} seeds ({', '.join(map(str, self.seeds))})"
        search_count = "one search" if self.of_searches == 1 else f"{self.searches} of {self.of_searches} searches"
        return f"{self.method}: {search_count}, {len(self.seeds)} of {self.of_seeds} seeds"


def tree_layout(tree: Tree, names: Sequence[str] = ()) -> TreeLayout:
    """Return the position of each module of a tree; tasks that part stay apart, whatever numbers later nodes have.

    Args:
        tree: Stage -> task -> node.
        names: The tasks' names, whose lines of text say how much room a leaf takes; default: one line a leaf.
    """
    count = len(tree[0]) if tree else len(names)
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    groups: list[list[tuple[int, ...]]] = [[tuple(range(count))]]
    parents: list[list[int]] = []

    for stage in tree:
        stage_groups, parent_indices = [], []
        for parent, tasks in enumerate(groups[-1]):
            tasks_by_node: dict[int, list[int]] = {}
            for task in tasks:
                tasks_by_node.setdefault(int(stage[task]), []).append(task)
            stage_groups += sorted(map(tuple, tasks_by_node.values()), key=lambda part: -len(part))
            parent_indices += [parent] * len(tasks_by_node)

        groups.append(stage_groups)
        parents.append(parent_indices)

    heights: list[list[float]] = [[] for _ in groups]
    top = 0.0
    for tasks in groups[-1]:
        lines = max(1, len(leaf_lines([names[task] for task in tasks]))) if names else 1
        heights[-1].append(top + lines / 2)
        top += lines + 0.6

    for stage_number in reversed(range(len(tree))):
        for index in range(len(groups[stage_number])):
            below = [
                y for y, parent in zip(heights[stage_number + 1], parents[stage_number], strict=True) if parent == index
            ]
            heights[stage_number].append((min(below) + max(below)) / 2)

    first_node = 0
    for number, (stage_groups, ys) in enumerate(zip(groups, heights, strict=True)):
        if number:
            edges += [
                (first_node - len(groups[number - 1]) + parent, first_node + index)
                for index, parent in enumerate(parents[number - 1])
            ]
        nodes += [Node(number, tasks, y) for tasks, y in zip(stage_groups, ys, strict=True)]
        first_node += len(stage_groups)

    return TreeLayout(tuple(nodes), tuple(edges), len(tree), max(top, 1.0))


def leaf_lines(names: Sequence[str]) -> list[str]:
    """Return the tasks of a leaf in lines of text."""
    return textwrap.wrap(", ".join(shortened(name).replace(" ", "\u00a0") for name in names), _WIDE)


def learned(records: Sequence[RunRecord]) -> dict[str, list[Learned]]:
    """Return method -> the trees of its finished runs, those of most seeds first; equal sharing is one tree."""
    records_by_tree: dict[str, dict[tuple[tuple[int, ...], ...], list[RunRecord]]] = {}
    for record in records:
        tree = _canonical(record.structure.get("tree"))
        if record.status == "finished" and tree is not None:
            records_by_tree.setdefault(record.method, {}).setdefault(tree, []).append(record)
    return {method: _most_first(method, trees)[:MOST_TREES] for method, trees in records_by_tree.items()}


def tree_chart(tree: Learned, file: str = "") -> Chart:
    """Return a column per stage, circles with the number of tasks that pass, and the tasks' names at the end."""
    layout = tree_layout(tree.tree, tree.tasks)
    edges = [(layout.nodes[start], layout.nodes[end]) for start, end in layout.edges]
    texts = {node: "\n".join(leaf_lines([tree.tasks[task] for task in node.tasks])) for node in layout.nodes}

    lines = Line(
        x=[stage for start, end in edges for stage in (start.stage, end.stage, None)],
        y=[height for start, end in edges for height in (-start.y, -end.y, None)],
        hover="",
    )
    modules = Dots(
        x=[node.stage for node in layout.nodes],
        y=[-node.y for node in layout.nodes],
        looks=[LineStyle(color) for color in _shades(layout)],
        names=list(texts.values()),
        inside=[str(len(node.tasks)) for node in layout.nodes],
        size=12.5,
        hover="{name}",
    )
    names = [ChartText(x=node.stage + 0.17, y=-node.y, text=texts[node], anchor="left") for node in layout.leaves]

    longest = max(len(line) for node in layout.leaves for line in texts[node].split("\n"))
    room = 0.3 + 0.068 * longest  # inches for the names
    ticks = {stage: _stage_name(tree, stage) for stage in range(layout.stages + 1)}
    x = Axis(ticks=ticks, limits=(-0.4, layout.stages + room / _COLUMN), grid=False, opposite=True)
    y = Axis(visible=False, grid=False, limits=(-layout.height - 0.3, 0.6))
    return Chart(
        panels=[Panel(marks=[lines, modules, *names], x=x, y=y)],
        title=f"Learned tree, {tree.title}",
        note="From the input to the tasks: in each circle how many pass that module; dark all, blue some, grey one.",
        file=file,
        width=max(5.0, 0.6 + _COLUMN * layout.stages + room),
        height=1.25 + 0.21 * layout.height,
        words=_describe_tree(tree),
    )


def _describe_tree(tree: Learned) -> str:
    """Describe the tree in words: how it widens, and which tasks are together in the end."""
    last = tree.tree[-1]
    groups = [
        [task for task, leaf in zip(tree.tasks, last, strict=True) if leaf == node] for node in dict.fromkeys(last)
    ]
    widths = ", ".join(str(len(set(stage))) for stage in tree.tree)
    return f"Modules of each stage: {widths}. At the end {' | '.join(', '.join(group) for group in groups)}."


def _stage_name(tree: Learned, stage: int) -> str:
    if stage == 0:
        return "input"
    size = f"\n{count_text(tree.sizes[stage - 1])}" if len(tree.sizes) >= stage else ""
    return f"stage {stage}{size}"


def _shades(layout: TreeLayout) -> list[str]:
    """Return the nodes' colours: dark where all tasks pass, blue where several do, grey where one is alone."""
    everyone = len(layout.nodes[0].tasks)
    return [_ALL if len(node.tasks) == everyone else _ONE if len(node.tasks) == 1 else _SOME for node in layout.nodes]


def _canonical(tree: Any) -> tuple[tuple[int, ...], ...] | None:
    """Renumber a tree's nodes by the first task that passes them; None where it is no tree of tasks."""
    if not isinstance(tree, list) or len({len(stage) for stage in tree if isinstance(stage, list)}) != 1:
        return None

    paths: list[tuple[int, ...]] = [()] * len(tree[0])
    stages = []
    for stage in tree:
        paths = [(*path, int(node)) for path, node in zip(paths, stage, strict=True)]
        numbers = {path: number for number, path in enumerate(dict.fromkeys(paths))}
        stages.append(tuple(numbers[path] for path in paths))
    return tuple(stages)


def _most_first(method: str, trees: dict[tuple[tuple[int, ...], ...], list[RunRecord]]) -> list[Learned]:
    runs = [record for tree_records in trees.values() for record in tree_records]
    totals = {"of_searches": _searches(runs), "of_seeds": len(runs)}

    learned_trees = []
    for tree, tree_records in trees.items():
        structure, seeds = tree_records[0].structure, tuple(sorted(record.seed for record in tree_records))
        tasks = tuple(str(task) for task in structure.get("tasks") or tree_records[0].main_metrics)
        if len(tasks) != len(tree[0]):
            tasks = tuple(f"task {number + 1}" for number in range(len(tree[0])))
        sizes = tuple(int(size) for size in structure.get("stage_parameters", ()))
        learned_trees.append(Learned(method, tree, tasks, sizes, seeds, _searches(tree_records), **totals))

    return sorted(learned_trees, key=lambda one: -len(one.seeds))


def _searches(records: Sequence[RunRecord]) -> int:
    """Count the searches: runs that share all phases before the last have one search between them."""
    return len({tuple(phase.phase_id for phase in record.phases) or record.run_id for record in records})
