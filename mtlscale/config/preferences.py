"""Preferences: how much each task matters, and even grids of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from mtlscale.config.errors import UserError

Preference = tuple[float, ...]  # one number ≥ 0 per task, in their order; they sum to 1
TOLERANCE = 1e-6  # of that sum

_RAY = re.compile(r"(\d+) of (\d+)")


def check_preference(where: str, preference: Sequence[float]) -> None:
    """Raise `UserError` if numbers are negative or do not sum to 1.

    Args:
        where: The beginning of the message.
    """
    shown = ", ".join(f"{number:g}" for number in preference)
    if any(number < 0 for number in preference):
        raise UserError(f"{where}: preference [{shown}] has a negative number; write shares from 0 to 1")
    total = math.fsum(preference)
    if abs(total - 1.0) > TOLERANCE:
        raise UserError(f"{where}: preference [{shown}] sums to {total:g}; make it sum to 1")


def rays(where: str, tasks: int, count: int) -> list[Preference]:
    """Return `count` even preferences for `tasks` tasks, none of them 0: the centres of equal parts of the simplex.

    They are the simplex lattice of Das and Dennis (1998), moved inwards by half a step: r_t = (n_t + 1/2) / (p + T/2)
    for all whole n_t ≥ 0 with sum p. Two tasks have a grid of any size: 1/2K, 3/2K, …

    Raises:
        UserError: If the tasks have no grid of that size; the message names the nearest sizes.
    """
    steps, size = 0, 1
    while size < count and tasks > 1:
        steps += 1
        size = math.comb(steps + tasks - 1, tasks - 1)
    if size != count:
        sizes = f"{math.comb(steps + tasks - 2, tasks - 1)} or {size}" if tasks > 1 else "1"
        raise UserError(f"{where}: {tasks} tasks have no even grid of {count} rays; choose {sizes}")

    grid = []
    for bars in combinations(range(steps + tasks - 1), tasks - 1):
        edges = (-1, *bars, steps + tasks - 1)
        parts = [last - first - 1 for first, last in pairwise(edges)]
        grid.append(tuple((part + 0.5) / (steps + tasks / 2) for part in parts))
    return grid


def ray_of(where: str, tasks: int, ray: str) -> Preference:
    """Return the preference of a ray "k of K", counted from 1.

    Raises:
        UserError: If the text is no ray, or the tasks have no such grid.
    """
    match = _RAY.fullmatch(ray)
    place, count = (int(number) for number in match.groups()) if match else (0, 0)
    if not 1 <= place <= count:
        raise UserError(f"{where}: ray {ray!r} should be 'k of K', such as '2 of 5'")
    return rays(where, tasks, count)[place - 1]


def central(preferences: Sequence[Sequence[float]]) -> int:
    """Return the place of the preference that is nearest to equal shares, the first of several."""
    distances = [sum((share - 1 / len(shares)) ** 2 for share in shares) for shares in preferences]
    return min(range(len(distances)), key=lambda place: (round(distances[place], 12), place))


def check_rays(rays: Any) -> int | tuple[Preference, ...]:
    """Return the rays of a method: their number, or a preference each.

    Raises:
        ValueError: If they are neither, or a preference is none.
    """
    if isinstance(rays, int) and not isinstance(rays, bool) and rays >= 1:
        return rays
    lists = isinstance(rays, list | tuple) and all(isinstance(ray, list | tuple) for ray in rays)
    if not lists or not rays or not all(_is_number(share) for ray in rays for share in ray):
        raise ValueError("should be a number of even rays, or a list of preferences, such as [[0.8, 0.2], [0.2, 0.8]]")

    preferences = tuple(tuple(float(share) for share in ray) for ray in rays)
    try:
        for preference in preferences:
            check_preference("rays", preference)
    except UserError as error:
        raise ValueError(str(error).removeprefix("rays: ")) from None
    if len({len(preference) for preference in preferences}) > 1:
        raise ValueError("has preferences of different lengths; write one number per task in each")
    if len(set(preferences)) < len(preferences):
        raise ValueError("has a preference twice; drop one")
    return preferences


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def ray_settings(rays: int | Sequence[Preference]) -> list[dict[str, Any]]:
    """Return the balancer's setting for each of a method's rays."""
    if isinstance(rays, int):
        return [{"ray": f"{number} of {rays}"} for number in range(1, rays + 1)]
    return [{"preference": list(preference)} for preference in rays]


def ray_label(row: str, settings: Mapping[str, Any]) -> str:
    """Return the label of one ray's runs, such as "epo ray 2 of 5" or "epo ray 0.8 0.2"; `row` for no ray."""
    text = settings.get("ray") or " ".join(f"{share:g}" for share in settings.get("preference") or ())
    return f"{row} ray {text}" if text else row


def innermost(balancer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the balancer inside all wrappers, from those of the outermost one."""
    while isinstance(wrapped := balancer.get("of"), Mapping):
        balancer = wrapped
    return balancer


def row_of(label: str, balancer: Mapping[str, Any]) -> str:
    """Return the leaderboard row that a label belongs to: the method's, if the label is that of one of its rays.

    Args:
        balancer: The settings of its balancer, as in a run's spec.
    """
    suffix = ray_label("", innermost(balancer))
    return label.removesuffix(suffix) if suffix else label
