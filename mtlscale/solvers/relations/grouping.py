"""Task grouping: which tasks to train together, from how much they help each other (Fifty et al., 2021)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

EXACT = 12  # tasks up to which all groupings are compared
_STARTS = 60
_GAIN = 1e-12  # less is rounding


def best_groups(affinity: Tensor | Sequence[Sequence[float]], groups: int, exact: int = EXACT) -> list[list[int]]:
    """Return at most `groups` groups, each task in one, sorted by their first tasks, of the largest total affinity.

    The total is the mean affinity onto a task from the others of its group, summed over tasks. A task alone has 0, as
    have affinities that are NaN.

    Args:
        affinity: The affinities [T, T], from row to column.
        groups: The most groups.
        exact: The number of tasks up to which the best grouping of all is found, of equal ones that with the fewest
            groups (of order 3^T steps); beyond, it is the best of a search from many starts, which moves and exchanges
            tasks as long as that helps.
    """
    if groups < 1:
        raise ValueError(f"groups: {groups} is not positive")

    table = torch.as_tensor(affinity, dtype=torch.float64).nan_to_num(0.0)
    symmetric = (table + table.T).fill_diagonal_(0.0).tolist()
    grouping = _of_all(symmetric, groups) if len(symmetric) <= exact else _searched(symmetric, groups)

    return sorted(sorted(group) for group in grouping)


def grouping_score(affinity: Tensor | Sequence[Sequence[float]], grouping: Sequence[Sequence[int]]) -> float:
    """Return the total affinity of a grouping, which `best_groups` makes as large as can be."""
    table = torch.as_tensor(affinity, dtype=torch.float64).nan_to_num(0.0)
    total = 0.0
    for group in grouping:
        pairs = [float(table[i, j]) for j in group for i in group if i != j]
        total += sum(pairs) / max(1, len(group) - 1)
    return total


def _of_all(both: list[list[float]], groups: int) -> list[list[int]]:
    """Return the best of all groupings: dynamic programming over subsets, with one group, then two, and so on."""
    tasks = len(both)
    worth = [0.0] * (1 << tasks)  # of a set as one group, first as the sum over its pairs
    for members in range(1, 1 << tasks):
        last = members.bit_length() - 1
        subset = members ^ (1 << last)
        worth[members] = worth[subset] + sum(both[last][task] for task in range(last) if subset >> task & 1)
    worth = [total / max(1, members.bit_count() - 1) for members, total in enumerate(worth)]

    # parts[k][set]: the group of the set's first task where k + 1 groups are better than k, else 0.
    best, parts = worth, [list(range(1 << tasks))]

    for _ in range(min(groups, tasks) - 1):
        better, part = list(best), [0] * (1 << tasks)
        for members in range(1, 1 << tasks):
            first = members & -members
            companions = subset = members ^ first
            while subset:
                subset = (subset - 1) & companions  # all proper subsets of the companions
                value = worth[first | subset] + best[companions ^ subset]
                if value > better[members] + _GAIN:
                    better[members], part[members] = value, first | subset
        best, parts = better, [*parts, part]

    grouping, remaining = [], (1 << tasks) - 1
    for part in reversed(parts):
        if part[remaining]:
            grouping.append([task for task in range(tasks) if part[remaining] >> task & 1])
            remaining ^= part[remaining]

    return grouping


def _searched(both: list[list[float]], groups: int, starts: int = _STARTS, seed: int = 0) -> list[list[int]]:
    """Search by moving a task or exchanging two, from tasks all together and from random groupings."""
    tasks, generator = len(both), random.Random(seed)
    best, best_assignment = 0.0, [0] * tasks
    for start in range(starts):
        assignment = [generator.randrange(groups) if start else 0 for _ in range(tasks)]
        value = _climbed(both, assignment, groups)
        if not start or value > best + _GAIN:
            best, best_assignment = value, assignment
    return [group for g in range(groups) if (group := [task for task in range(tasks) if best_assignment[task] == g])]


def _climbed(both: list[list[float]], place: list[int], groups: int) -> float:
    """Improve a grouping in place, task -> group, until no step helps; return its score."""
    tasks = range(len(place))
    size = [place.count(g) for g in range(groups)]
    ties = [[sum(both[t][u] for u in tasks if place[u] == g) for g in range(groups)] for t in tasks]
    worth = [sum(ties[t][g] for t in tasks if place[t] == g) / 2 for g in range(groups)]

    def score(total: float, members: int) -> float:
        return total / max(1, members - 1)

    def move(task: int, to: int) -> None:
        source = place[task]
        worth[source] -= ties[task][source]
        worth[to] += ties[task][to]
        size[source] -= 1
        size[to] += 1
        place[task] = to
        for other_task in tasks:
            ties[other_task][source] -= both[other_task][task]
            ties[other_task][to] += both[other_task][task]

    while True:
        best, steps = _GAIN, list[tuple[int, int]]()
        for t in tasks:
            a = place[t]
            for b in range(groups):
                if b != a:
                    gain = score(worth[a] - ties[t][a], size[a] - 1) + score(worth[b] + ties[t][b], size[b] + 1)
                    gain -= score(worth[a], size[a]) + score(worth[b], size[b])
                    if gain > best:
                        best, steps = gain, [(t, b)]

            for u in range(t):
                b = place[u]
                if b != a:
                    worth_a = worth[a] - ties[t][a] + ties[u][a] - both[t][u]
                    worth_b = worth[b] - ties[u][b] + ties[t][b] - both[t][u]
                    gain = score(worth_a, size[a]) + score(worth_b, size[b])
                    gain -= score(worth[a], size[a]) + score(worth[b], size[b])
                    if gain > best:
                        best, steps = gain, [(t, b), (u, a)]

        if not steps:
            return sum(score(worth[g], size[g]) for g in range(groups))
        for task, to in steps:
            move(task, to)
