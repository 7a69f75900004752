"""Reader for small pictures with one label each in a set of the `datasets` library, such as MNIST and CIFAR."""

from __future__ import annotations

import numpy as np

from mtlscale.config import UserError
from pipelines._formats.hub import HubFolder
from pipelines._images.pixels import BadImage, array, open_image
from pipelines._sources.file_store import Unreadable, location_text, read_file

IMAGE = ("image", "img", "pixels")
LABEL = ("label", "labels", "fine_label", "target")
_NPY = b"\x93NUMPY"


def labelled_images(
    hub: HubFolder, part: str, shape: tuple[int, ...], label: tuple[str, ...] = LABEL
) -> tuple[np.ndarray, np.ndarray]:
    """Return (uint8 [N, *shape], labels [N]) of a split.

    Args:
        part: train, val or test.
        shape: Height, width and, for colour, 3.
        label: Possible names of the column of labels.

    Raises:
        UserError: A picture is corrupt or of another size, or a label is missing; the message names the first.
    """
    split = hub.split_names.get(part)
    if split is None:
        raise UserError(f"{hub.pipeline}: {hub.root} has no split {part}; it has {', '.join(hub.files)}")

    column = hub.columns({"image": IMAGE, "label": label})
    cells, labels = hub.cells(split, column["image"]), hub.values(split, column["label"])
    for row, value in enumerate(labels):
        if not isinstance(value, int) or value < 0:
            raise UserError(f"{hub.pipeline}: row {row + 1} of {split} has the label {value!r}; mend or drop it")

    images = np.empty((len(cells), *shape), np.uint8)
    for row, cell in enumerate(cells):
        try:
            images[row] = _pixels(read_file(str(hub.root), cell), shape)
        except (BadImage, Unreadable) as error:
            raise UserError(f"{hub.pipeline}: {location_text(cell)} {error}; mend the set") from None

    return images, np.array(labels, np.int64)


def _pixels(raw: bytes, shape: tuple[int, ...]) -> np.ndarray:
    if raw.startswith(_NPY):
        pixels = array(raw, (2, 3))
        if pixels.dtype.kind == "f" or pixels.min() < 0 or pixels.max() > 255:
            raise BadImage("holds numbers that are no bytes")
        pixels = pixels.reshape(shape) if pixels.size == np.prod(shape) else pixels
    else:
        pixels = np.asarray(open_image(raw).convert("RGB" if len(shape) == 3 else "L"))
    if pixels.shape != shape:
        raise BadImage(f"has shape {list(pixels.shape)}, expected {list(shape)}")
    return pixels
