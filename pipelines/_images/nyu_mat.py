"""Reader for NYUv2's official files: the labelled frames in one HDF5 file, beside the split and the class map."""

from __future__ import annotations

import functools
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np

from mtlscale.config import UserError
from pipelines._images.nyu_classes import TO_13
from pipelines._images.pixels import BadImage, Size, resize_colour
from pipelines._sources.file_store import Store

LABELED, SPLITS, MAPPING = "nyu_depth_v2_labeled.mat", "splits.mat", "classMapping40.mat"
FILES = (LABELED, SPLITS, MAPPING)


def open_source(store: Store, classes: int) -> tuple[dict[int, str], np.ndarray]:
    """Return 1-based frame number -> "train" or "val" (the official test frames), and stored label -> class.

    Args:
        classes: Size of the label set, 13 or 40.

    Raises:
        UserError: h5py or a file is missing, or the files are damaged or contradict each other.
    """
    if importlib.util.find_spec("h5py") is None:
        raise UserError("nyuv2: reading the official .mat needs h5py; pip install 'mtlscale[mat]'")

    named = {name.rpartition("/")[2]: name for name in store.names}
    for file in FILES:
        if file not in named:
            raise UserError(f"nyuv2: {file} is missing beside {LABELED} in {store.source}")
    path = store.root / store.location(named[LABELED])
    if not path.is_file():
        raise UserError(f"nyuv2: {LABELED} cannot be read inside a zip; extract it")

    try:
        shapes = {key: _open(str(path))[key].shape for key in ("images", "depths", "labels")}
    except (OSError, KeyError) as error:
        raise UserError(f"nyuv2: {path} is truncated or not the official file ({error}); fetch it again") from None

    count = shapes["images"][0]
    if shapes["images"][1] != 3 or not (shapes["depths"] == shapes["labels"] == (count, *shapes["images"][2:])):
        raise UserError(f"nyuv2: {path} holds arrays of unlike shapes {list(shapes.values())}; fetch it again")

    splits = _matlab(store, named[SPLITS], ("trainNdxs", "testNdxs"))
    frames = {int(n): "train" for n in splits["trainNdxs"].ravel()} | {
        int(n): "val" for n in splits["testNdxs"].ravel()
    }

    if not frames or not 1 <= min(frames) <= max(frames) <= count:
        raise UserError(f"nyuv2: {SPLITS} names frames beyond the {count} of {LABELED}; fetch both again")
    if set(splits["trainNdxs"].ravel()) & set(splits["testNdxs"].ravel()):
        raise UserError(f"nyuv2: {SPLITS} has a frame in both parts; fetch it again")

    classes_40 = _matlab(store, named[MAPPING], ("mapClass",))["mapClass"].ravel().astype(int)
    if classes_40.size == 0 or classes_40.min() < 1 or classes_40.max() > 40:
        raise UserError(f"nyuv2: {MAPPING} maps to classes outside 1..40; fetch it again")

    mapped = classes_40 - 1 if classes == 40 else np.array(TO_13)[classes_40 - 1]
    return dict(sorted(frames.items())), np.concatenate([[-1], mapped]).astype(np.int8)


def read_frame(path: str, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return uint8 [H, W, 3], labels [H, W] and metres [H, W] of a 1-based frame.

    MATLAB stores the axes in the reverse order.
    """
    try:
        file = _open(path)
        image, labels, metres = (file[key][number - 1] for key in ("images", "labels", "depths"))
    except (OSError, KeyError) as error:
        raise BadImage(f"cannot be read at frame {number} ({error})") from None
    return image.transpose(2, 1, 0), labels.T.astype(np.int64), metres.T


def resized(image: np.ndarray, size: Size) -> np.ndarray:
    """Resize an image [H, W, 3] to `size`."""
    return resize_colour(np.ascontiguousarray(image), size)


def _open(path: str) -> Any:
    status = Path(path).stat()
    return _open_once(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=2)
def _open_once(path: str, mtime_ns: int, size: int) -> Any:
    import h5py

    return h5py.File(path, "r")


def _matlab(store: Store, name: str, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    try:
        loaded = loadmat(io.BytesIO(store.read(name)))  # type: ignore[arg-type]
        return {key: loaded[key] for key in keys}
    except (ValueError, KeyError, NotImplementedError, TypeError, OSError) as error:
        raise UserError(f"nyuv2: {name} is damaged or has no {error}; fetch it again") from None
