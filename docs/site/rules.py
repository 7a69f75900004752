"""Pictures of what balancers do with two gradients in the plane, as SVG in the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import properties
import torch
from torch import Tensor

from mtlscale.balancing import Balancer
from mtlscale.config.errors import UserError
from mtlscale.config.registry.components import build

CASES = {
    "in conflict": ((1.5, 0.3), (-0.7, 0.6)),
    "in agreement": ((1.5, 0.3), (0.3, 0.75)),
}
LOSSES = (1.0, 0.5)
SEEDS = 12  # draws of a rule with chance in it
SIZE, UNIT = 260, 62.0  # of a picture, and of length 1
CENTRE = (105.0, 165.0)
LONGEST = 2.2  # an update beyond is drawn shorter
CONE = 2.3  # length of its sides, as shown

CAPTION = (
    "Gradients of two tasks (blue, orange; losses 1 and 0.5), the updates by which no loss rises (shaded), the mean "
    "gradient (dashed), and the update (bold) in the first step with default settings. The optimiser subtracts it."
)


def picture(name: str) -> str | None:
    """Return the pictures of a balancer's rule; None where two gradients alone do not show it."""
    balancer = _balancer(name)
    if balancer is None:
        return None
    panels = [_panel(case, gradients, _updates(balancer, gradients)) for case, gradients in CASES.items()]
    return f'<figure class="rule"><div>{"".join(panels)}</div><figcaption>{CAPTION}</figcaption></figure>'


def _balancer(name: str) -> Balancer | None:
    balancer: Balancer | None
    try:
        balancer = build("balancers", name, {"weights": [2.0, 1.0]}) if name == "static" else properties.default(name)
    except UserError:
        return None
    return balancer


def _updates(balancer: Balancer, gradients: Sequence[Sequence[float]]) -> Tensor:
    """Return the updates [SEEDS, 2] of a first step; they differ where the rule has chance in it."""
    jacobians = torch.tensor(gradients, dtype=torch.float64).expand(1, SEEDS, 2, 2)
    losses = torch.tensor(LOSSES, dtype=torch.float64).expand(1, SEEDS, 2)
    return properties.updates(balancer, properties.Draws(jacobians, losses, 0.95 * losses), torch.float64)[0]


def _panel(case: str, gradients: Sequence[Sequence[float]], updates: Tensor) -> str:
    mean = [sum(axis) / len(gradients) for axis in zip(*gradients, strict=True)]
    parts = [_cone(gradients)]
    parts += [_arrow(gradient, f"task{task + 1}", f"g{'₁₂'[task]}") for task, gradient in enumerate(gradients)]
    parts.append(_arrow(mean, "mean"))

    different = torch.unique((updates * 1e6).round(), dim=0) / 1e6
    if len(different) > 1:
        parts += [_arrow(update, "draw") for update in different[:SEEDS].tolist()]
        note = f"{case}: {len(different)} draws"
    else:
        update = updates[0].tolist()
        parts.append(_arrow(update, "update", "d"))
        length = math.hypot(*update)
        shown = f"d = ({update[0]:.2f}, {update[1]:.2f})" if length <= LONGEST else f"d, of length {length:.3g}, cut"
        note = f"{case}: {shown}".replace("-", "−")
    text = f'<text x="8" y="{SIZE - 8}">{note}</text>'
    return f'<svg viewBox="0 0 {SIZE} {SIZE}" role="img" aria-label="{note}">{"".join(parts)}{text}</svg>'


def _cone(gradients: Sequence[Sequence[float]]) -> str:
    """Return the sector of directions with no negative product with a gradient."""
    angles = [math.atan2(y, x) for x, y in gradients]
    low, high = max(angles) - math.pi / 2, min(angles) + math.pi / 2
    start, end = (_point((CONE * math.cos(angle), CONE * math.sin(angle))) for angle in (low, high))
    arc = f"A{CONE * UNIT:.1f} {CONE * UNIT:.1f} 0 0 0 {_shown(end)}"
    return f'<path class="cone" d="M{_shown(CENTRE)} L{_shown(start)} {arc} Z"/>'


def _arrow(vector: Sequence[float], kind: str, name: str = "") -> str:
    """Return an arrow from the centre with its name at the tip."""
    length = math.hypot(*vector)
    if length < 0.02:
        x, y = CENTRE
        label = f'<text x="{x + 8:.1f}" y="{y - 8:.1f}" class="{kind}">{name} = 0</text>' if name else ""
        return f'<circle class="{kind}" cx="{x}" cy="{y}" r="4"/>{label}'
    shown = [part * min(1.0, LONGEST / length) for part in vector]
    (x, y), angle = _point(shown), math.atan2(shown[1], shown[0])
    tip = " ".join(_shown((x - 9 * math.cos(angle + turn), y + 9 * math.sin(angle + turn))) for turn in (0.4, -0.4))
    side = -7 if kind == "task2" else 7  # of the arrow, on which its name stands
    at_x = x + 7 * math.cos(angle) - side * math.sin(angle)
    at_y = y - 7 * math.sin(angle) - side * math.cos(angle) + 4
    label = f'<text x="{at_x:.1f}" y="{at_y:.1f}" class="{kind}">{name}</text>' if name else ""
    return (
        f'<path class="{kind}" d="M{_shown(CENTRE)} L{x:.1f} {y:.1f}"/>'
        f'<polygon class="{kind}" points="{x:.1f},{y:.1f} {tip}"/>{label}'
    )


def _point(vector: Sequence[float]) -> tuple[float, float]:
    return CENTRE[0] + UNIT * vector[0], CENTRE[1] - UNIT * vector[1]


def _shown(point: Sequence[float]) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
