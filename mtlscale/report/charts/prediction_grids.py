"""Grid of test images with a network's predictions for every pixel beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mtlscale.report.charts.chart import Axis, Chart, Image, Panel
from mtlscale.report.charts.colors import COLORS, VIRIDIS, ramp

_ABSENT = (0.85, 0.85, 0.85)
_SIDE = 1.6  # inches of an image
_MOST_CLASSES = 20  # with a name below the grid


@dataclass(frozen=True)
class Maps:
    """The maps of one task: classes [N, H, W] (-1 where absent), numbers [N, H, W] or normals [N, 3, H, W] (NaN)."""

    task: str
    kind: Literal["classes", "numbers", "normals"]
    prediction: np.ndarray
    truth: np.ndarray
    classes: tuple[str, ...] = ()


def picture_chart(inputs: np.ndarray, maps: Sequence[Maps], title: str = "") -> Chart:
    """Return a row per image [N, C, H, W]: the image, then prediction and truth of every task.

    Classes in a categorical colour map, numbers in viridis over the range of the truth, normals as RGB, absent truth
    in grey.
    """
    images = {"image": _as_rgb(inputs)}
    for task_maps in maps:
        guess, truth = colours(task_maps)
        images |= {f"{task_maps.task}\npredicted": guess, f"{task_maps.task}\ntrue": truth}

    hidden = Axis(visible=False, grid=False)
    panels = [
        Panel(marks=[Image(pixels=pixels[row])], title="" if row else name, x=hidden, y=hidden, equal=True)
        for row in range(len(inputs))
        for name, pixels in images.items()
    ]
    named = [
        class_map.classes
        for class_map in maps
        if class_map.kind == "classes" and 0 < len(class_map.classes) <= _MOST_CLASSES
    ]
    height, width = inputs.shape[-2:]
    return Chart(
        panels=panels,
        title=title,
        columns=len(images),
        width=len(images) * _SIDE * min(width / height, 1.6),
        height=len(inputs) * _SIDE + 0.5,
        key=[(COLORS[index], name) for index, name in enumerate(named[0])] if named else (),
    )


def colours(maps: Maps) -> tuple[np.ndarray, np.ndarray]:
    """Return the colours of prediction and truth as [N, H, W, 3] in [0, 1]."""
    if maps.kind == "classes":
        count = int(max(maps.prediction.max(), maps.truth.max())) + 1
        palette = ramp(COLORS, np.arange(count) % len(COLORS) / (len(COLORS) - 1)) / 255
        return palette[maps.prediction], np.where((maps.truth >= 0)[..., None], palette[maps.truth.clip(0)], _ABSENT)

    if maps.kind == "normals":
        absent = np.isnan(maps.truth).any(1)[..., None]
        return _normal_rgb(maps.prediction), np.where(absent, _ABSENT, _normal_rgb(np.nan_to_num(maps.truth)))
    absent = np.isnan(maps.truth)

    low, high = (0.0, 1.0) if absent.all() else (float(np.nanmin(maps.truth)), float(np.nanmax(maps.truth)))
    span = (high - low) or 1.0
    guess, truth = (
        ramp(VIRIDIS, (np.nan_to_num(values) - low) / span) / 255 for values in (maps.prediction, maps.truth)
    )
    return guess, np.where(absent[..., None], _ABSENT, truth)


def _normal_rgb(normals: np.ndarray) -> np.ndarray:
    """Return normals [N, 3, H, W] as colours [N, H, W, 3]: every component from [-1, 1] to [0, 1]."""
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.moveaxis((normals / np.maximum(length, 1e-6) + 1.0) / 2.0, 1, -1)


def _as_rgb(inputs: np.ndarray) -> np.ndarray:
    """Return images [N, C, H, W] as [N, H, W, 3]: bytes from 0..255 to [0, 1], other numbers over their range."""
    pixels = np.moveaxis(inputs, 1, -1).astype(float)
    pixels = pixels[..., :3] if pixels.shape[-1] >= 3 else np.repeat(pixels[..., :1], 3, -1)
    if inputs.dtype == np.uint8:
        return pixels / 255.0
    low, high = pixels.min(), pixels.max()
    scaled: np.ndarray = (pixels - low) / ((high - low) or 1.0)
    return scaled
