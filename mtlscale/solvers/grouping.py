"""Which tasks to train together, from how much they help each other (Fifty et al., NeurIPS 2021)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

EXACT = 12  # tasks up to which all groupings are compared
_STARTS = 60
_GAIN = 1e-12  # less is rounding


def best_groups(affinity: Tensor | Sequence[Sequence[float]], groups: int, exact: int = EXACT) -> list[list[int]]:
    """affinity [T, T], from row to column -> at most so many groups, each task in one, by their first tasks, in which
    the mean affinity onto a task from the others of its group is the largest, summed over tasks. Alone it is 0, as are
    affinities that are NaN.

    Up to `exact` tasks the best of all, of equal ones that with the fewest groups (of order 3^T steps); beyond, the
    best of a search from many starts, which moves and exchanges tasks as long as that helps.
    """
    if groups < 1:
        raise ValueError(f"groups: {groups} is not positive")
    table = torch.as_tensor(affinity, dtype=torch.float64).nan_to_num(0.0)
    both = (table + table.T).fill_diagonal_(0.0).tolist()
    found = _of_all(both, groups) if len(both) <= exact else _searched(both, groups)
    return sorted(sorted(group) for group in found)


def grouping_score(affinity: Tensor | Sequence[Sequence[float]], grouping: Sequence[Sequence[int]]) -> float:
    """What `best_groups` makes as large as can be."""
    table = torch.as_tensor(affinity, dtype=torch.float64).nan_to_num(0.0)
    total = 0.0
    for group in grouping:
        pairs = [float(table[i, j]) for j in group for i in group if i != j]
        total += sum(pairs) / max(1, len(group) - 1)
    return total


def _of_all(both: list[list[float]], groups: int) -> list[list[int]]:
    """By subsets: the best grouping of each set of tasks into one group, into at most two, …"""
    tasks = len(both)
    worth = [0.0] * (1 << tasks)  # of a set as one group, first as the sum over its pairs
    for members in range(1, 1 << tasks):
        last = members.bit_length() - 1
        rest = members ^ (1 << last)
        worth[members] = worth[rest] + sum(both[last][task] for task in range(last) if rest >> task & 1)
    worth = [total / max(1, members.bit_count() - 1) for members, total in enumerate(worth)]
    # parts[k][set]: the group of its first task where k + 1 groups are better than k, else none.
    best, parts = worth, [list(range(1 << tasks))]
    for _ in range(min(groups, tasks) - 1):
        better, part = list(best), [0] * (1 << tasks)
        for members in range(1, 1 << tasks):
            first = members & -members
            others = rest = members ^ first
            while rest:
                rest = (rest - 1) & others  # all subsets of the others but themselves
                value = worth[first | rest] + best[others ^ rest]
                if value > better[members] + _GAIN:
                    better[members], part[members] = value, first | rest
        best, parts = better, [*parts, part]
    found, left = [], (1 << tasks) - 1
    for part in reversed(parts):
        if part[left]:
            found.append([task for task in range(tasks) if part[left] >> task & 1])
            left ^= part[left]
    return found


def _searched(both: list[list[float]], groups: int, starts: int = _STARTS, seed: int = 0) -> list[list[int]]:
    """By moving a task to another group or exchanging two, from tasks all together and from random groupings."""
    tasks, generator = len(both), random.Random(seed)
    best, found = 0.0, [0] * tasks
    for start in range(starts):
        place = [generator.randrange(groups) if start else 0 for _ in range(tasks)]
        value = _climbed(both, place, groups)
        if not start or value > best + _GAIN:
            best, found = value, place
    return [group for g in range(groups) if (group := [task for task in range(tasks) if found[task] == g])]


def _climbed(both: list[list[float]], place: list[int], groups: int) -> float:
    """Improve a grouping in place, task -> group, until no step helps; its score."""
    tasks = range(len(place))
    size = [place.count(g) for g in range(groups)]
    ties = [[sum(both[t][u] for u in tasks if place[u] == g) for g in range(groups)] for t in tasks]
    worth = [sum(ties[t][g] for t in tasks if place[t] == g) / 2 for g in range(groups)]

    def score(total: float, members: int) -> float:
        return total / max(1, members - 1)

    def move(task: int, to: int) -> None:
        own = place[task]
        worth[own] -= ties[task][own]
        worth[to] += ties[task][to]
        size[own] -= 1
        size[to] += 1
        place[task] = to
        for other in tasks:
            ties[other][own] -= both[other][task]
            ties[other][to] += both[other][task]

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
                    one = worth[a] - ties[t][a] + ties[u][a] - both[t][u]
                    other = worth[b] - ties[u][b] + ties[t][b] - both[t][u]
                    gain = score(one, size[a]) + score(other, size[b])
                    gain -= score(worth[a], size[a]) + score(worth[b], size[b])
                    if gain > best:
                        best, steps = gain, [(t, b), (u, a)]
        if not steps:
            return sum(score(worth[g], size[g]) for g in range(groups))
        for task, to in steps:
            move(task, to)
