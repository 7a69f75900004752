"""What searches found, in words and tables under results/tables: trees, branch points, conflicts module by module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from mtlscale.records import RunRecord

Tree = Sequence[Sequence[int]]  # stage -> task -> node

# Experiment -> data set -> the tree that is expected of a method that finds out who should share.
_SYNTHETIC = {"unlike": "separate networks", "alike": "everything shared"}
EXPECTED = dict.fromkeys(("conal_synthetic", "conal_reading_a", "conal_reading_b"), _SYNTHETIC)


def found(records: Sequence[RunRecord]) -> Iterator[str]:
    """The sections of an experiment's records, as many as they have something to say about."""
    for section in (shares, trees, point_shares, points, conflicts):
        lines = list(section(records))
        if lines:
            yield "\n".join([*lines, ""])


def shares(records: Sequence[RunRecord]) -> Iterator[str]:
    """How often the learned tree is the expected one, of every method that learned one, where something is expected."""
    rows: list[str] = []
    for (dataset, method), runs in _by_row(records):
        expected = EXPECTED.get(runs[0].experiment, {}).get(dataset)
        learned = [tree for run in runs if (tree := _tree(run)) is not None]
        if expected is None or not learned:
            continue
        hits = [kind(tree) == expected for tree in learned]
        seeds = [str(run.seed) for run, hit in zip(_with_tree(runs), hits, strict=True) if not hit]
        strict = [all(at == wanted for at, wanted in found) for run in runs if (found := _points(run, expected))]
        exact = f"{sum(strict)} of {len(strict)}" if strict else "–"
        rows.append(
            f"| {dataset} | {expected} | {method} | {exact} | {sum(hits)} of {len(hits)} | "
            f"{100 * sum(hits) / len(hits):.0f} | {', '.join(seeds) or '–'} |"
        )
    if rows:
        yield "Share of seeds with the expected branch point of every task, and with the expected tree (there, a task "
        yield "that is alone on the trunk counts as separate):\n"
        yield "| data set | expected | method | points | trees | % of trees | other trees: seeds |"
        yield "| --- | --- | --- | ---: | ---: | ---: | --- |"
        yield from rows


def trees(records: Sequence[RunRecord]) -> Iterator[str]:
    """The learned trees of every method, equal ones of several seeds in one row."""
    rows: list[str] = []
    for (dataset, method), runs in _by_row(records):
        told: dict[str, list[RunRecord]] = {}
        for run in _with_tree(runs):
            tree = _tree(run)
            assert tree is not None
            told.setdefault(words(tree, run.structure["tasks"]), []).append(run)
        for text, alike in sorted(told.items(), key=lambda item: -len(item[1])):
            seeds = ", ".join(str(run.seed) for run in alike)
            rows.append(f"| {dataset} | {method} | {text} | {alike[0].parameters / 1e6:.3g} | {seeds} |")
    if rows:
        yield "What the searches found, stage by stage (tasks in braces share their modules):\n"
        yield "| data set | method | tree | M parameters | seeds |\n| --- | --- | --- | ---: | --- |"
        yield from rows


def point_shares(records: Sequence[RunRecord]) -> Iterator[str]:
    """How many of the tasks, over all seeds, leave the shared encoder at each branch point, where one is likeliest."""
    rows: list[str] = []
    width = 0
    for (dataset, method), runs in _by_row(records):
        chosen: list[int] = []
        for run in runs:
            if found := _points(run, "everything shared"):
                chosen += [point for point, _ in found]
                width = max(width, found[0][1])
        if chosen:
            parts = [f"{100 * chosen.count(point) / len(chosen):.0f}" for point in range(1, width + 1)]
            rows.append(f"| {dataset} | {method} | {' '.join(parts)} | {len(runs)} |")
    if rows:
        yield "Tasks by branch point, % of all tasks and seeds, from 1 (a network of its own) to everything shared:\n"
        yield "| data set | method | branch points | seeds |\n| --- | --- | --- | ---: |"
        yield from rows


def points(records: Sequence[RunRecord]) -> Iterator[str]:
    """Where private modules begin, of methods that have such points in place of a tree."""
    rows: list[str] = []
    for (dataset, method), runs in _by_row(records):
        for run in runs:
            at = run.structure.get("points") if run.phases else None  # else the method says them itself
            if at:
                told = ", ".join(f"{task} {point}" for task, point in at.items())
                rows.append(f"| {dataset} | {method} | {run.seed} | {told} |")
    if rows:
        yield "Branch points (1: a network of its own, the last: everything shared):\n"
        yield "| data set | method | seed | task and point |\n| --- | --- | ---: | --- |"
        yield from rows


def conflicts(records: Sequence[RunRecord]) -> Iterator[str]:
    """The share of pairs of tasks with opposed gradients in each module, and of steps that moved it.

    All are means over epochs and seeds: raw conflicts, those in steps that moved the module, and these steps.
    """
    rows: list[str] = []
    for (dataset, method), runs in _by_row(records):
        traces = [epoch.traces for run in runs for epoch in run.epochs if "conflict_ratio" in epoch.traces]
        sizes = {len(trace["conflict_ratio"]) for trace in traces}
        for size in sorted(sizes - {0}):  # stages of a search notice fewer modules
            alike = [trace for trace in traces if len(trace["conflict_ratio"]) == size]
            columns = [
                _percent([trace[name] for trace in alike if name in trace])
                for name in ("conflict_ratio", "applied_ratio", "moved_ratio")
            ]
            rows.append(f"| {dataset} | {method} | {' | '.join(columns)} | {len(alike)} |")
    if rows:
        yield "Pairs of tasks whose gradients conflict, % in each module from the input on, of all steps and of those "
        yield "that moved the module, and the share of these:\n"
        yield "| data set | method | conflicts | applied | steps that moved it | epochs |"
        yield "| --- | --- | --- | --- | --- | ---: |"
        yield from rows


def _percent(ratios: Sequence[Sequence[float]]) -> str:
    """The means of these rows, in percent; "–" where runs of an earlier version noted none."""
    means = [100 * sum(column) / len(ratios) for column in zip(*ratios, strict=True)]
    return " ".join(f"{mean:.2f}" for mean in means) or "–"


def _points(record: RunRecord, expected: str) -> list[tuple[int, int]]:
    """Each task's likeliest branch point after the search (from 1; of equal ones the later), and the expected one."""
    tables = [epoch.traces["branching"] for epoch in record.epochs if "branching" in epoch.traces]
    found = []
    for chances in tables[-1].values() if tables else ():
        last = len(chances) - 1
        likeliest = last - max(range(len(chances)), key=lambda place: chances[last - place])
        found.append((likeliest + 1, 1 if expected == "separate networks" else len(chances)))
    return found


def kind(tree: Tree) -> str:
    """Of a tree, in the words of `EXPECTED`; "partly shared" is neither."""
    if all(len(set(nodes)) == 1 for nodes in tree):
        return "everything shared"
    if all(len(set(nodes)) == len(nodes) for nodes in tree):
        return "separate networks"
    return "partly shared"


def words(tree: Tree, tasks: Sequence[str]) -> str:
    """`1-3 {a, b, c}; 4 {a, b} {c}`, stages from 1; stages that divide the tasks alike are told once."""
    if kind(tree) != "partly shared":
        return kind(tree)
    told = []
    divided = [(stage, _groups(nodes, tasks)) for stage, nodes in enumerate(tree, 1)]
    for groups, stages in groupby(divided, key=lambda item: item[1]):
        numbers = [stage for stage, _ in stages]
        span = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        told.append(f"{span} {' '.join('{' + ', '.join(group) + '}' for group in groups)}")
    return "; ".join(told)


def _groups(nodes: Sequence[int], tasks: Sequence[str]) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for node, task in zip(nodes, tasks, strict=True):
        groups.setdefault(node, []).append(task)
    return list(groups.values())


def _tree(record: RunRecord) -> Tree | None:
    """Of a run that searched for it."""
    if not record.phases:
        return None
    structure: Mapping[str, object] = record.structure
    tree = structure.get("tree")
    return tree if isinstance(tree, list) and tree else None


def _with_tree(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if _tree(record) is not None]


def _by_row(records: Sequence[RunRecord]) -> Iterator[tuple[tuple[str, str], list[RunRecord]]]:
    """(data set, method) -> its finished runs, in the order of the records."""
    rows: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        if record.status == "finished":
            rows.setdefault((record.dataset, record.method), []).append(record)
    yield from rows.items()
