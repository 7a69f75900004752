"""What a user should know of pictures before they are prepared: depth, transparency, orientation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mtlscale.data.format.image_decoding import DEEP, BadImage, has_alpha, is_turned, open_image
from pipelines._sources.file_store import Store, Unreadable

_LOOKED_AT = 40
_WORD = 65535


def picture_lines(store: Store, white: float) -> Iterator[str]:
    """Yield a line for each way in which some of a set's pictures are changed beside their size.

    Args:
        white: The value of white that the user gives; 0: none.
    """
    names = store.names[:: max(1, len(store.names) // _LOOKED_AT)][:_LOOKED_AT]
    transparent = turned = deep = 0
    largest = 0.0
    for name in names:
        try:
            image = open_image(store.read(name))
        except (BadImage, Unreadable):
            continue  # the preparation names them
        transparent += has_alpha(image)
        turned += is_turned(image)
        if image.mode in DEEP and image.mode != "F":
            deep += 1
            largest = max(largest, float(np.asarray(image).max()))

    seen = f"of {len(names)} pictures that were looked at"
    if deep:
        line = f"{deep} {seen} have more than 8 bits and are read as 0 to {white or _WORD:g}"
        small = not white and largest <= _WORD // 2
        top = 2 ** int(np.ceil(np.log2(largest + 1))) - 1
        yield f"{line}; their largest value is {largest:g}" + (
            f": --option white={top} if that is white" if small else ""
        )
    if transparent:
        yield f"{transparent} {seen} may be transparent; what is transparent becomes white"
    if turned:
        yield f"{turned} {seen} are stored turned; they are turned as their Exif says"
