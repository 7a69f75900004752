"""Surface normals estimated from a depth map, for sets that come without measured ones."""

from __future__ import annotations

import functools

import numpy as np
from scipy.ndimage import uniform_filter

WINDOWS_PER_HEIGHT = 32  # the window is this part of the height: 9 pixels of 288, 15 of 480
MISFIT = 0.03  # of the inverse depth, root mean square over the window: more is an edge, not a surface
_LEAST_SHARE = 0.5  # of a window's pixels that must have a depth

Camera = tuple[float, float, float, float]  # focal lengths fx, fy and centre cx, cy, in parts of width and height


def estimate_normals(depth: np.ndarray, camera: Camera) -> np.ndarray:
    """Return unit normals [3, H, W], float32, from depth in metres [H, W] (NaN: unknown); NaN where no plane fits.

    Axes: x right, y up, z towards the viewer. Around each pixel a plane is fitted by least squares: for a pinhole
    camera, the inverse depth of a plane is linear in the pixel's coordinates, so its three coefficients are the normal
    up to its length. Pixels whose window lies across a depth edge (misfit above 3 %) or has too few depths get no
    normal.
    """
    height, width = depth.shape
    window = 2 * (height // (2 * WINDOWS_PER_HEIGHT)) + 1
    window = max(window, 3)

    valid = np.isfinite(depth) & (depth > 0)
    inverse = np.divide(1.0, depth, out=np.zeros((height, width)), where=valid)

    x, y = _rays(height, width, camera)
    moments = _known_moments(height, width, camera, window) if valid.all() else _moments(valid, x, y, window)
    share, mean_x, mean_y, xx, xy, yy = moments

    fits = valid & (share >= _LEAST_SHARE * share.max())
    share = np.where(fits, share, 1.0)

    mean = _box(inverse, window) / share
    xw = _box(x * inverse, window) / share - mean_x * mean
    yw = _box(y * inverse, window) / share - mean_y * mean
    ww = _box(inverse**2, window) / share - mean**2

    determinant = xx * yy - xy**2
    fits &= determinant > 1e-3 * xx * yy  # otherwise the window's pixels lie on a line
    determinant = np.where(fits, determinant, 1.0)

    a, b = (yy * xw - xy * yw) / determinant, (xx * yw - xy * xw) / determinant
    misfit = np.sqrt(np.maximum(ww - a * xw - b * yw, 0.0))
    fits &= misfit <= MISFIT * mean

    normals = np.stack([-a, b, mean - a * mean_x - b * mean_y])
    length = np.linalg.norm(normals, axis=0)
    fits &= length > 0
    return np.where(fits, normals / np.where(fits, length, 1.0), np.nan).astype(np.float32)


def _rays(height: int, width: int, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Return x / z and y / z of the points that each pixel may show, y pointing down: [H, W] each."""
    fx, fy, cx, cy = camera
    x = ((np.arange(width) + 0.5) / width - cx) / fx
    y = ((np.arange(height) + 0.5) / height - cy) / fy
    return np.broadcast_to(x, (height, width)), np.broadcast_to(y[:, None], (height, width))


def _moments(valid: np.ndarray, x: np.ndarray, y: np.ndarray, window: int) -> tuple[np.ndarray, ...]:
    """Return the share of known pixels in each window, and the mean and covariance of their coordinates."""
    share = _box(valid.astype(float), window)
    safe = np.where(share > 1e-9, share, 1.0)
    mean_x, mean_y = _box(x * valid, window) / safe, _box(y * valid, window) / safe
    xx = _box(x * x * valid, window) / safe - mean_x**2
    xy = _box(x * y * valid, window) / safe - mean_x * mean_y
    yy = _box(y * y * valid, window) / safe - mean_y**2
    return share, mean_x, mean_y, xx, xy, yy


@functools.lru_cache(maxsize=4)
def _known_moments(height: int, width: int, camera: Camera, window: int) -> tuple[np.ndarray, ...]:
    """Return the moments of a map without holes, cached: equal for a size, and most of the time."""
    return _moments(np.ones((height, width), bool), *_rays(height, width, camera), window)


def _box(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean over the window; values outside the map are 0, as unknown values are."""
    return uniform_filter(values, window, mode="constant")
