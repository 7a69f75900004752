"""Grid of test images with a network's predictions for every pixel beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from mtlscale.report.charts.canvas import new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ABSENT = (0.85, 0.85, 0.85)
_MOST_CLASSES = 20  # with a name below the grid


@dataclass(frozen=True)
class Maps:
    """The maps of one task: classes [N, H, W] (-1 where absent), numbers [N, H, W] or normals [N, 3, H, W] (NaN)."""

    task: str
    kind: Literal["classes", "numbers", "normals"]
    prediction: np.ndarray
    truth: np.ndarray
    classes: tuple[str, ...] = ()


def picture_figure(inputs: np.ndarray, maps: Sequence[Maps], title: str = "") -> Figure:
    """Draw a row per image [N, C, H, W]: the image, then prediction and truth of every task.

    Classes in a categorical colour map, numbers in viridis over the range of the truth, normals as RGB, absent truth
    in grey.
    """
    rows, columns = len(inputs), 1 + 2 * len(maps)
    height, width = inputs.shape[-2:]
    side = 1.6

    with style():
        figure = new_figure(columns * side * min(width / height, 1.6), rows * side + 0.5)
        panels = figure.subplots(rows, columns, squeeze=False)
        _column(panels[:, 0], "image", _as_rgb(inputs))

        for index, task_maps in enumerate(maps):
            guess, truth = colours(task_maps)
            _column(panels[:, 1 + 2 * index], f"{task_maps.task}\npredicted", guess)
            _column(panels[:, 2 + 2 * index], f"{task_maps.task}\ntrue", truth)

        named_maps = [
            task_maps
            for task_maps in maps
            if task_maps.kind == "classes" and 0 < len(task_maps.classes) <= _MOST_CLASSES
        ]
        if named_maps:
            _names(figure, named_maps[0].classes)
        if title:
            figure.suptitle(title)
    return figure


def colours(maps: Maps) -> tuple[np.ndarray, np.ndarray]:
    """Return the colours of prediction and truth as [N, H, W, 3] in [0, 1]."""
    from matplotlib import colormaps

    if maps.kind == "classes":
        palette = np.array(
            [_class_colour(index) for index in range(int(max(maps.prediction.max(), maps.truth.max())) + 1)]
        )
        return palette[maps.prediction], np.where((maps.truth >= 0)[..., None], palette[maps.truth.clip(0)], _ABSENT)

    if maps.kind == "normals":
        absent = np.isnan(maps.truth).any(1)[..., None]
        return _normal_rgb(maps.prediction), np.where(absent, _ABSENT, _normal_rgb(np.nan_to_num(maps.truth)))
    absent = np.isnan(maps.truth)

    low, high = (0.0, 1.0) if absent.all() else (float(np.nanmin(maps.truth)), float(np.nanmax(maps.truth)))
    span = (high - low) or 1.0
    guess, truth = (
        colormaps["viridis"](((np.nan_to_num(values) - low) / span).clip(0, 1))[..., :3]
        for values in (maps.prediction, maps.truth)
    )
    return guess, np.where(absent[..., None], _ABSENT, truth)


def _class_colour(index: int) -> tuple[float, float, float]:
    from matplotlib import colormaps

    red, green, blue = colormaps["tab20"](index % 20)[:3]
    return red, green, blue


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


def _column(panels: np.ndarray, title: str, images: np.ndarray) -> None:
    panels[0].set_title(title)
    for panel, image in zip(panels, images, strict=True):
        panel.imshow(image)
        panel.set_axis_off()


def _names(figure: Figure, classes: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=_class_colour(index), label=name) for index, name in enumerate(classes)]
    figure.legend(handles=patches, loc="outside lower center", ncols=min(len(classes), 7), frameon=False)
