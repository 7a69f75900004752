"""Exact decoding and resizing: colour is filtered when it shrinks, labels and depth keep their nearest pixel."""

from __future__ import annotations

import numpy as np
from PIL import Image

from mtlscale.data.format.image_decoding import (
    BadImage,
    Size,
    array,
    array_picture,
    colour,
    is_array,
    open_image,
    picture,
    resize_colour,
)

__all__ = [
    "BYTES",
    "FORBIDDEN",
    "WORDS",
    "BadImage",
    "Size",
    "array",
    "array_picture",
    "classes",
    "colour",
    "depth",
    "filtered",
    "is_array",
    "nearest",
    "open_image",
    "picture",
    "resize_colour",
    "same_size",
    "table_of",
    "unit_normals",
    "values",
]


def values(raw: bytes, modes: tuple[str, ...], bits: str) -> np.ndarray:
    """Return the stored numbers of a label or depth image, [H, W] or [H, W, C]; a palette image gives its indices.

    Args:
        modes: Pillow's names of the accepted kinds.
        bits: The accepted kinds in words.

    Raises:
        BadImage: The image is of another kind.
    """
    image = open_image(raw)
    if image.mode not in modes:
        raise BadImage(f"has pixels of kind {image.mode}, expected {bits}")

    return np.asarray(image)


BYTES = ("L", "P")  # 8-bit numbers
WORDS = ("I;16", "I", "I;16B")  # 16-bit numbers


def nearest(pixels: np.ndarray, size: Size) -> np.ndarray:
    """Resize [H, W, ...] to [*size, ...]: each new pixel takes the value of the old one under its centre."""
    height, width = pixels.shape[:2]
    if (height, width) == size:
        return pixels
    rows = ((2 * np.arange(size[0]) + 1) * height) // (2 * size[0])
    columns = ((2 * np.arange(size[1]) + 1) * width) // (2 * size[1])
    return pixels[rows[:, None], columns]


def filtered(numbers: np.ndarray, size: Size) -> np.ndarray:
    """Resize a map of numbers [H, W] without gaps to float32 [*size], filtered as colour is: thin lines stay."""
    if numbers.shape == size:
        return numbers.astype(np.float32)
    image = Image.fromarray(numbers.astype(np.float32))
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def same_size(size: Size, image: Size) -> None:
    """Raise `BadImage` if a label is not as large as its image."""
    if size != image:
        raise BadImage(f"is {size[0]}x{size[1]} pixels, its image {image[0]}x{image[1]}")


def classes(labels: np.ndarray, table: np.ndarray, what: str) -> np.ndarray:
    """Map stored labels to classes by a table: `MISSING_CLASS` for void, -2 for labels that may not occur."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(table):
        raise BadImage(f"has the label {low if low < 0 else high}, outside {what}")
    mapped = table[labels]
    if mapped.min() == FORBIDDEN:
        raise BadImage(f"has the label {int(labels[mapped == FORBIDDEN].min())}, outside {what}")
    return mapped


FORBIDDEN = -2  # an entry in a table of `classes`


def table_of(mapping: dict[int, int], void: tuple[int, ...] = ()) -> np.ndarray:
    """Return a table for `classes`: stored label -> class, `void` -> MISSING_CLASS, all others forbidden."""
    table = np.full(max([*mapping, *void]) + 1, FORBIDDEN, np.int16)
    for label, number in mapping.items():
        table[label] = number
    table[list(void)] = -1
    return table.astype(np.int8) if table.max() <= 127 else table


def depth(metres: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return float32 depth, NaN where there is no measurement; raise `BadImage` if there is none at all."""
    if not valid.any():
        raise BadImage("has no valid depth: every pixel is zero or invalid")
    return np.where(valid, metres, np.float32(np.nan)).astype(np.float32)


def unit_normals(vectors: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return float32 unit vectors of [H, W, 3], NaN where absent; raise `BadImage` if there is none at all."""
    length = np.linalg.norm(vectors, axis=-1)
    valid = valid & np.isfinite(length) & (length > 0)
    if not valid.any():
        raise BadImage("has no valid normal")
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = vectors / length[..., None]
    return np.where(valid[..., None], unit, np.nan).astype(np.float32)
