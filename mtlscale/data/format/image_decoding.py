"""Decoding of pictures to pixels, used both when a set is prepared and when pictures are decoded in training."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

Size = tuple[int, int]  # height, width

DEEP = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N", "F"})  # Pillow's modes of more than 8 bits
_WITH_ALPHA = frozenset({"RGBA", "RGBa", "LA", "La", "PA"})
_ORIENTATION = 0x0112  # of Exif
_WORD = 65535.0
_OPAQUE = 255
_MARGIN = 0.01  # for images that were interpolated in single precision
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


def in_colour(image: Image.Image, white: float = 0.0) -> Image.Image:
    """Return a picture upright, in 8 bits and three colours, what is transparent on white.

    Args:
        image: The picture in its own mode.
        white: The value of white in pictures of more than 8 bits; 0: 65535 for whole numbers, 1 for others.

    Raises:
        BadImage: Pixels lie outside the range, or the colours cannot be converted.
    """
    if is_turned(image):
        image = ImageOps.exif_transpose(image)
    if image.mode in DEEP:
        image = _shallow(image, white)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    try:
        if has_alpha(image):
            pixels = image.convert("RGBA")
            if np.asarray(pixels.getchannel("A")).min() < _OPAQUE:
                image = Image.alpha_composite(Image.new("RGBA", pixels.size, "white"), pixels)
        return image.convert("RGB")
    except (ValueError, OSError) as error:
        raise BadImage(
            f"has colours of kind {image.mode}, which cannot be converted ({error}); save it as RGB"
        ) from None


def is_turned(image: Image.Image) -> bool:
    """Return whether a picture's Exif says that it is stored turned or mirrored."""
    return image.getexif().get(_ORIENTATION, 1) in range(2, 9)


def has_alpha(image: Image.Image) -> bool:
    """Return whether some pixels of a picture may be transparent."""
    return image.mode in _WITH_ALPHA or "transparency" in image.info


def _shallow(image: Image.Image, white: float) -> Image.Image:
    """Return a picture of 16 or 32 bits in 8 bits, by its range and not by its own smallest and largest pixel."""
    pixels = np.asarray(image).astype(np.float64)
    whole = image.mode != "F"
    white = white or (_WORD if whole else 1.0)
    margin = 0.0 if whole else _MARGIN * white
    if not np.isfinite(pixels).all() or pixels.min() < -margin or pixels.max() > white + margin:
        numbers = f"{pixels.min():g} to {pixels.max():g}"
        raise BadImage(
            f"has pixels from {numbers}, outside 0 to {white:g}; scale them, or set `white` to that of white"
        )
    return Image.fromarray(np.clip(np.rint(pixels * (255 / white)), 0, 255).astype(np.uint8))


def colour(raw: bytes, size: Size, white: float = 0.0) -> tuple[np.ndarray, Size]:
    """Decode a picture to uint8 [3, *size] (`in_colour`), and return it with its original (height, width).

    Shrinking averages over the pixels that fall together (Pillow's antialiased bilinear filter).
    """
    image = in_colour(open_image(raw), white)
    before = (image.height, image.width)
    return scaled(image, size).transpose(2, 0, 1), before


def scaled(image: Image.Image, size: Size) -> np.ndarray:
    """Return the pixels of a picture in this size."""
    if (image.height, image.width) != size:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(image)


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
        if not np.isfinite(pixels).all() or pixels.min() < -_MARGIN or pixels.max() > 1 + _MARGIN:
            raise BadImage("has pixels outside 0..1, or that are no numbers")
        pixels = np.clip(np.rint(pixels.astype(np.float64) * 255), 0, 255).astype(np.uint8)

    return resize_colour(pixels, size), (pixels.shape[0], pixels.shape[1])
