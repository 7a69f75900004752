"""Grouping of streams of different lengths that share a pass side by side, so that little of it is padding."""

from __future__ import annotations

from collections.abc import Sequence


def by_length(lengths: Sequence[int], overhead: float) -> list[list[int]]:
    """Group positions by length so that Σ longest × members + overhead × groups is least.

    `overhead` is the cost of another pass, in samples of one stream. Groups go from the shortest to the longest
    streams; within a group, positions keep their order.
    """
    order = sorted(range(len(lengths)), key=lambda position: (lengths[position], position))
    best, start = [0.0], [0]

    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        costs = [best[begin] + longest * (end - begin) + overhead for begin in range(end)]
        cheapest = min(range(end), key=costs.__getitem__)
        best.append(costs[cheapest])
        start.append(cheapest)

    groups, end = [], len(order)
    while end:
        groups.append(sorted(order[start[end] : end]))
        end = start[end]

    return groups[::-1]


def padded(lengths: Sequence[int], groups: Sequence[Sequence[int]]) -> int:
    """Return the number of samples that the groups' passes work on, padding included."""
    return sum(max(lengths[position] for position in group) * len(group) for group in groups)
