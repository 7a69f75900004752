"""Decoding and resizing, exactly: colour is filtered when it shrinks, labels and depth keep their nearest pixel."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

Size = tuple[int, int]  # height, width

_UNDECODABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)


class BadImage(Exception):
    """What is wrong with one file of a sample."""


def open_image(raw: bytes) -> Image.Image:
    """A decoded image in its own mode; `BadImage` where the bytes are none."""
    try:
        image = Image.open(io.BytesIO(raw))
        image.load()
        return image
    except _UNDECODABLE as error:
        reason = str(error).splitlines()[0] if not isinstance(error, UnidentifiedImageError) else "no image format"
        raise BadImage(f"is corrupt ({reason})") from None


def colour(raw: bytes, size: Size) -> tuple[np.ndarray, Size]:
    """An encoded picture -> uint8 [3, *size], and the (height, width) it had.

    Shrinking averages over the pixels that fall together (Pillow's antialiased bilinear filter).
    """
    image = open_image(raw)
    before = (image.height, image.width)
    if image.mode != "RGB":
        image = image.convert("RGB")
    if before != size:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1), before


def resize_colour(pixels: np.ndarray, size: Size) -> np.ndarray:
    """uint8 [H, W, 3] -> uint8 [3, *size], filtered as `colour` does."""
    if pixels.shape[:2] != size:
        pixels = np.asarray(Image.fromarray(pixels).resize((size[1], size[0]), Image.Resampling.BILINEAR))
    return pixels.transpose(2, 0, 1)


def values(raw: bytes, modes: tuple[str, ...], bits: str) -> np.ndarray:
    """The stored numbers of a label or depth image, [H, W] or [H, W, C]; `BadImage` where its kind is another.

    `modes` are Pillow's names of the kinds that are right, `bits` says them in words. A palette image gives its
    indices.
    """
    image = open_image(raw)
    if image.mode not in modes:
        raise BadImage(f"has pixels of kind {image.mode}, expected {bits}")
    return np.asarray(image)


BYTES = ("L", "P")  # 8-bit numbers
WORDS = ("I;16", "I", "I;16B")  # 16-bit numbers


def array(raw: bytes, dimensions: tuple[int, ...]) -> np.ndarray:
    """A `.npy` file's array; `BadImage` where it is none, holds objects, or has another number of dimensions."""
    try:
        loaded: Any = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise BadImage(f"is no .npy array ({str(error).splitlines()[0] if str(error) else 'it is empty'})") from None
    if not isinstance(loaded, np.ndarray) or loaded.ndim not in dimensions or loaded.dtype.kind not in "fiub":
        shape = getattr(loaded, "shape", None)
        raise BadImage(f"holds an array of shape {shape}, expected {' or '.join(map(str, dimensions))} dimensions")
    return loaded


def nearest(pixels: np.ndarray, size: Size) -> np.ndarray:
    """[H, W, ...] -> [*size, ...]: each new pixel takes the value of the old one under its centre."""
    height, width = pixels.shape[:2]
    if (height, width) == size:
        return pixels
    rows = ((2 * np.arange(size[0]) + 1) * height) // (2 * size[0])
    columns = ((2 * np.arange(size[1]) + 1) * width) // (2 * size[1])
    return pixels[rows[:, None], columns]


def filtered(numbers: np.ndarray, size: Size) -> np.ndarray:
    """A map of numbers [H, W] without gaps -> float32 [*size], filtered as colour is: thin lines stay."""
    if numbers.shape == size:
        return numbers.astype(np.float32)
    image = Image.fromarray(numbers.astype(np.float32))
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def same_size(found: Size, image: Size) -> None:
    """`BadImage` where a label is not as large as its image."""
    if found != image:
        raise BadImage(f"is {found[0]}x{found[1]} pixels, its image {image[0]}x{image[1]}")


def classes(labels: np.ndarray, table: np.ndarray, what: str) -> np.ndarray:
    """Stored labels -> classes by a table (`MISSING_CLASS` for void, -2 for what may not occur)."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(table):
        raise BadImage(f"has the label {low if low < 0 else high}, outside {what}")
    mapped = table[labels]
    if mapped.min() == FORBIDDEN:
        raise BadImage(f"has the label {int(labels[mapped == FORBIDDEN].min())}, outside {what}")
    return mapped


FORBIDDEN = -2  # in a table of `classes`


def table_of(mapping: dict[int, int], void: tuple[int, ...] = ()) -> np.ndarray:
    """A table for `classes`: stored label -> class, `void` labels -> MISSING_CLASS, everything else forbidden."""
    table = np.full(max([*mapping, *void]) + 1, FORBIDDEN, np.int16)
    for label, number in mapping.items():
        table[label] = number
    table[list(void)] = -1
    return table.astype(np.int8) if table.max() <= 127 else table


def depth(metres: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """float32 with NaN where there is no measurement; `BadImage` where there is none at all."""
    if not valid.any():
        raise BadImage("has no valid depth: every pixel is zero or invalid")
    return np.where(valid, metres, np.float32(np.nan)).astype(np.float32)


def unit_normals(vectors: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """[H, W, 3] -> float32 unit vectors, NaN where absent; `BadImage` where there is none at all."""
    length = np.linalg.norm(vectors, axis=-1)
    valid = valid & np.isfinite(length) & (length > 0)
    if not valid.any():
        raise BadImage("has no valid normal")
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = vectors / length[..., None]
    return np.where(valid[..., None], unit, np.nan).astype(np.float32)
