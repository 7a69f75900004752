"""Task groups from measured affinities, and a sentence that claims no more than the measurements support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEVEL = 0.05  # probability of any claim about tasks that are all alike


@dataclass(frozen=True)
class Estimate:
    """Means with the half-widths of their simultaneous confidence intervals.

    All intervals hold together; a half-width is infinite where nothing is known.
    """

    mean: Tensor
    margin: Tensor

    @property
    def low(self) -> Tensor:
        return self.mean - self.margin

    @property
    def high(self) -> Tensor:
        return self.mean + self.margin


def estimated(tables: Tensor, comparisons: int) -> Estimate:
    """Return the mean over P measurements, with Student's confidence interval.

    Args:
        tables: [P, ...], NaN where nothing was measured.
        comparisons: number of comparisons that share the level of the intervals: it is divided by this number.
    """
    from scipy.stats import t

    measured = tables.isfinite()
    count = measured.sum(0)
    mean = tables.nanmean(0)
    spread = (torch.where(measured, tables - mean, 0.0).square().sum(0) / (count - 1).clamp(min=1)).sqrt()
    factor = torch.as_tensor(
        t.ppf(1 - LEVEL / 2 / max(1, comparisons), (count - 1).clamp(min=1).numpy()), dtype=tables.dtype
    )

    return Estimate(mean, torch.where(count > 1, factor * spread / count.clamp(min=1).sqrt(), math.inf))


def symmetric(tables: Tensor) -> Tensor:
    """Return the mean of both directions of a table [..., T, T], with NaN on the diagonal."""
    averaged = (tables + tables.transpose(-1, -2)) / 2
    return averaged.masked_fill(torch.eye(tables.shape[-1], dtype=torch.bool), math.nan)


def merges(similarity: Tensor) -> list[tuple[int, int, float, int]]:
    """Return the merges of average linkage for a similarity matrix [T, T], NaN taken as 0.

    Each merge is (node, node, mean similarity between them, number of tasks below it).
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    table = similarity.nan_to_num(0.0)
    off_diagonal = ~torch.eye(len(table), dtype=torch.bool)
    top = float(table[off_diagonal].max())
    distance = torch.where(off_diagonal, top - table, 0.0)
    merge_rows = linkage(squareform(distance.numpy(), checks=False), "average")
    return [(int(a), int(b), top - float(height), int(size)) for a, b, height, size in merge_rows]


def groups_of(found: Sequence[tuple[int, int, float, int]]) -> list[list[int]]:
    """Return the groups that merges of positive similarity form, ordered by their first tasks."""
    tasks = len(found) + 1
    nodes: list[list[int]] = [[task] for task in range(tasks)]
    roots = {*range(tasks)}
    for number, (a, b, similarity, _) in enumerate(found):
        nodes.append(sorted([*nodes[a], *nodes[b]]))
        if similarity > 0:
            roots = roots - {a, b} | {tasks + number}
    return sorted(nodes[node] for node in roots)


def across(tables: Tensor) -> Estimate | None:
    """Estimate what tasks of different groups do to each other, on measurements that did not choose the groups.

    Groups are chosen by one half of the P measurements and are looked at in the other, and the other way round. Return
    None where neither half makes more than one group.

    Args:
        tables: [P, T, T], how much row helps column.
    """
    similarities = symmetric(tables)
    held_out_means = []
    for half in (0, 1):
        groups = groups_of(merges(similarities[half::2].nanmean(0)))
        if len(groups) > 1:
            group_of_task = torch.zeros(similarities.shape[-1], dtype=torch.long)
            for number, group in enumerate(groups):
                group_of_task[group] = number
            across_groups = group_of_task[:, None] != group_of_task
            held_out_means.append(similarities[1 - half :: 2][:, across_groups].nanmean(1))

    return estimated(torch.cat(held_out_means), 1) if held_out_means else None


def verdict(groups: int, held_out: Estimate | None, unit: str) -> str:
    """Return a sentence that says whether the groups are more than a guess.

    Args:
        held_out: effect across groups, from `across`; None where neither half makes more than one group.
        unit: what was measured several times, "networks" or "batches".
    """
    if groups == 1:
        return "One group of all tasks: nothing here speaks against sharing everything."

    if held_out is not None and float(held_out.high) < 0:
        caution = "" if unit == "networks" else " (of one network: try another --seed)"
        return f"The groups hold up: in {unit} they were not chosen by, steps across them do harm on average{caution}."

    return (
        f"The groups are a guess, and sharing everything is not contradicted: in {unit} that groups were not chosen "
        "by, steps across them do no harm beyond chance."
    )


def sentence(names: Sequence[str], tables: Tensor, unit: str = "batches") -> str:
    """Return a sentence that says which tasks help or hurt each other most.

    Every claim holds beyond the spread of the measurements, with `LEVEL` shared among all pairs and tasks; sizes are in
    percent of what tasks do for themselves.

    Args:
        tables: [P, T, T], how much row helps column, measured P times.
        unit: what was measured several times, "networks" or "batches".
    """
    similarities, size = symmetric(tables), len(names)
    upper = torch.ones(size, size).triu(1).bool()
    comparisons = size * (size - 1) // 2 + size
    pairs, alone = estimated(similarities, comparisons), estimated(similarities.nanmean(2), comparisons)
    if not bool((upper & pairs.mean.isfinite()).any()):
        return "Nothing can be said: no pair of tasks was measured together."
    own_effects = tables.nanmean(0).diagonal()

    def pair(place: int, verb: str) -> str:
        i, j = divmod(place, size)
        share = float(pairs.mean[i, j] / (own_effects[i] + own_effects[j]) * 2)
        percentage = f" ({share:+.0%} of what a step of their own does)" if share > -1 and math.isfinite(share) else ""
        return f"{names[i]} and {names[j]} {verb} each other{' most' if size > 2 else ''}{percentage}"

    claims = []
    best = int(torch.where(upper, pairs.mean.nan_to_num(-math.inf), -math.inf).argmax())
    typical = float(pairs.mean[upper].nanmedian()) if size > 2 else 0.0
    if float(pairs.low.flatten()[best]) > max(0.0, typical):
        claims.append(pair(best, "help"))

    worst = int(torch.where(upper, pairs.mean.nan_to_num(math.inf), math.inf).argmin())
    if float(pairs.high.flatten()[worst]) < 0:
        claims.append(pair(worst, "hurt"))

    lonely = [names[task] for task in range(size) if float(alone.high[task]) < 0] if size > 2 else []
    if len(lonely) == size:
        claims.append("each task is best alone")
    elif lonely:
        *front, last = lonely
        claims.append(f"{', '.join(front)}{' and ' if front else ''}{last} {'are' if front else 'is'} best alone")

    if claims:
        return "; ".join(claims) + "."
    if bool((pairs.low[upper] > 0).all()):
        return "All tasks help each other, none of them clearly more than the others: share everything."
    single = unit.removesuffix("s" if unit == "networks" else "es")
    return f"Nothing stands out: what pairs of tasks do to each other differs as much from {single} to {single}."
