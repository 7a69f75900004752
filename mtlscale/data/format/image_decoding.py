"""Decoding of pictures to pixels, used both when a set is prepared and when pictures are decoded in training."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

Size = tuple[int, int]  # height, width

_NPY = b"\x93NUMPY"
_UNDECODABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)


class BadImage(Exception):
    """The error for one unusable file of a sample."""


def open_image(raw: bytes) -> Image.Image:
    """Return a decoded image in its own mode.

    Raises:
        BadImage: If the bytes are no image.
    """
    try:
        image = Image.open(io.BytesIO(raw))
        image.load()
        return image
    except _UNDECODABLE as error:
        reason = str(error).splitlines()[0] if not isinstance(error, UnidentifiedImageError) else "no image format"
        raise BadImage(f"is corrupt ({reason})") from None


def colour(raw: bytes, size: Size) -> tuple[np.ndarray, Size]:
    """Decode a picture to uint8 [3, *size], and return it with its original (height, width).

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
    """Resize uint8 [H, W, 3] to uint8 [3, *size], filtered as `colour` does."""
    if pixels.shape[:2] != size:
        pixels = np.asarray(Image.fromarray(pixels).resize((size[1], size[0]), Image.Resampling.BILINEAR))
    return pixels.transpose(2, 0, 1)


def array(raw: bytes, dimensions: tuple[int, ...]) -> np.ndarray:
    """Return a `.npy` file's array.

    Raises:
        BadImage: If it is none, holds objects, or has another number of dimensions.
    """
    try:
        loaded: Any = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise BadImage(f"is no .npy array ({str(error).splitlines()[0] if str(error) else 'it is empty'})") from None

    if not isinstance(loaded, np.ndarray) or loaded.ndim not in dimensions or loaded.dtype.kind not in "fiub":
        shape = getattr(loaded, "shape", None)
        raise BadImage(f"holds an array of shape {shape}, expected {' or '.join(map(str, dimensions))} dimensions")
    return loaded


def is_array(raw: bytes) -> bool:
    """Return whether the bytes are a `.npy` file."""
    return raw[: len(_NPY)] == _NPY


def picture(raw: bytes, size: Size) -> tuple[np.ndarray, Size]:
    """Return uint8 [3, *size] of an encoded picture or a `.npy` array, and its original (height, width)."""
    return array_picture(raw, size) if is_array(raw) else colour(raw, size)


def array_picture(raw: bytes, size: Size) -> tuple[np.ndarray, Size]:
    """Return uint8 [3, *size] of a `.npy` array [H, W, 3] of bytes or floats in 0..1, and its (height, width)."""
    pixels = array(raw, (3,))
    if pixels.shape[2] != 3:
        raise BadImage(f"has shape {list(pixels.shape)}, expected height x width x 3")
    if pixels.dtype != np.uint8:
        # The margin is for images that were interpolated in single precision.
        if not np.isfinite(pixels).all() or pixels.min() < -0.01 or pixels.max() > 1.01:
            raise BadImage("has pixels outside 0..1, or that are no numbers")
        pixels = np.clip(np.rint(pixels.astype(np.float64) * 255), 0, 255).astype(np.uint8)

    return resize_colour(pixels, size), (pixels.shape[0], pixels.shape[1])
