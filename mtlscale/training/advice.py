"""From how much tasks help each other to groups of them, and to a sentence that says no more than is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEVEL = 0.05  # of the chance that anything is said of tasks that are all alike


@dataclass(frozen=True)
class Estimate:
    """Means and half the widths of their intervals, which hold for all of them together; infinite where unknown."""

    mean: Tensor
    margin: Tensor

    @property
    def low(self) -> Tensor:
        return self.mean - self.margin

    @property
    def high(self) -> Tensor:
        return self.mean + self.margin


def estimated(tables: Tensor, comparisons: int) -> Estimate:
    """tables [P, ...], NaN where nothing was measured -> mean over the P measurements, with Student's interval at a
    level that is divided by so many comparisons."""
    from scipy.stats import t

    there = tables.isfinite()
    count = there.sum(0)
    mean = tables.nanmean(0)
    spread = (torch.where(there, tables - mean, 0.0).square().sum(0) / (count - 1).clamp(min=1)).sqrt()
    factor = torch.as_tensor(
        t.ppf(1 - LEVEL / 2 / max(1, comparisons), (count - 1).clamp(min=1).numpy()), dtype=tables.dtype
    )
    return Estimate(mean, torch.where(count > 1, factor * spread / count.clamp(min=1).sqrt(), math.inf))


def symmetric(tables: Tensor) -> Tensor:
    """[..., T, T] -> the mean of both directions, NaN on the diagonal."""
    both = (tables + tables.transpose(-1, -2)) / 2
    return both.masked_fill(torch.eye(tables.shape[-1], dtype=torch.bool), math.nan)


def merges(similarity: Tensor) -> list[tuple[int, int, float, int]]:
    """[T, T], NaN taken as 0 -> average linkage: (node, node, mean similarity between them, tasks below) by merge."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    table = similarity.nan_to_num(0.0)
    off = ~torch.eye(len(table), dtype=torch.bool)
    top = float(table[off].max())
    distance = torch.where(off, top - table, 0.0)
    found = linkage(squareform(distance.numpy(), checks=False), "average")
    return [(int(a), int(b), top - float(height), int(size)) for a, b, height, size in found]


def groups_of(found: Sequence[tuple[int, int, float, int]]) -> list[list[int]]:
    """What the merges join that are of positive similarity, by the groups' first tasks."""
    tasks = len(found) + 1
    nodes: list[list[int]] = [[task] for task in range(tasks)]
    apart = {*range(tasks)}
    for number, (a, b, similarity, _) in enumerate(found):
        nodes.append(sorted([*nodes[a], *nodes[b]]))
        if similarity > 0:
            apart = apart - {a, b} | {tasks + number}
    return sorted(nodes[node] for node in apart)


def across(tables: Tensor) -> Estimate | None:
    """tables [P, T, T]: what tasks of different groups do to each other, where the groups were chosen by one half of
    the measurements and are looked at in the other; None where neither half makes more than one group."""
    both = symmetric(tables)
    found = []
    for half in (0, 1):
        groups = groups_of(merges(both[half::2].nanmean(0)))
        if len(groups) > 1:
            place = torch.zeros(both.shape[-1], dtype=torch.long)
            for number, group in enumerate(groups):
                place[group] = number
            apart = place[:, None] != place
            found.append(both[1 - half :: 2][:, apart].nanmean(1))
    return estimated(torch.cat(found), 1) if found else None


def verdict(groups: int, held_out: Estimate | None, unit: str) -> str:
    """Whether the groups are more than a guess. unit: what was measured several times, networks or batches."""
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
    """tables [P, T, T]: how much row helps column, measured P times. What is said holds beyond the spread of the
    measurements, with `LEVEL` shared among all pairs and tasks; sizes are in percent of what tasks do for themselves.
    """
    both, size = symmetric(tables), len(names)
    upper = torch.ones(size, size).triu(1).bool()
    comparisons = size * (size - 1) // 2 + size
    pairs, alone = estimated(both, comparisons), estimated(both.nanmean(2), comparisons)
    if not bool((upper & pairs.mean.isfinite()).any()):
        return "Nothing can be said: no pair of tasks was measured together."
    own = tables.nanmean(0).diagonal()

    def pair(place: int, verb: str) -> str:
        i, j = divmod(place, size)
        share = float(pairs.mean[i, j] / (own[i] + own[j]) * 2)
        told = f" ({share:+.0%} of what a step of their own does)" if share > -1 and math.isfinite(share) else ""
        return f"{names[i]} and {names[j]} {verb} each other{' most' if size > 2 else ''}{told}"

    said = []
    best = int(torch.where(upper, pairs.mean.nan_to_num(-math.inf), -math.inf).argmax())
    rest = float(pairs.mean[upper].nanmedian()) if size > 2 else 0.0
    if float(pairs.low.flatten()[best]) > max(0.0, rest):
        said.append(pair(best, "help"))
    worst = int(torch.where(upper, pairs.mean.nan_to_num(math.inf), math.inf).argmin())
    if float(pairs.high.flatten()[worst]) < 0:
        said.append(pair(worst, "hurt"))
    lonely = [names[task] for task in range(size) if float(alone.high[task]) < 0] if size > 2 else []
    if len(lonely) == size:
        said.append("each task is best alone")
    elif lonely:
        *front, last = lonely
        said.append(f"{', '.join(front)}{' and ' if front else ''}{last} {'are' if front else 'is'} best alone")
    if said:
        return "; ".join(said) + "."
    if bool((pairs.low[upper] > 0).all()):
        return "All tasks help each other, none of them clearly more than the others: share everything."
    one = unit.removesuffix("s" if unit == "networks" else "es")
    return f"Nothing stands out: what pairs of tasks do to each other differs as much from {one} to {one}."
