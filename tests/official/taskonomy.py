"""Taskonomy's buildings, small and drawn from a fixed generator."""

from pathlib import Path

import numpy as np
from image_sets import picture, save

from pipelines.image.taskonomy import BUILDINGS

SIDE = 64  # the real ones have 512
VIEWS = [(point, view) for point in range(6) for view in range(2)]


def views_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    labels = np.kron(rng.integers(0, 18, (8, 8)), np.ones((8, 8), int)).astype(np.uint8)
    depth = rng.integers(300, 5000, (SIDE, SIDE)).astype(np.uint16)
    depth[:4], depth[4:6] = 65535, 0
    normal = rng.choice(np.array([[255, 127, 127], [127, 0, 127], [127, 127, 255]], np.uint8), (SIDE, SIDE))
    normal[-4:] = 127
    keypoints, edges = (rng.integers(0, 65536, (SIDE, SIDE)).astype(np.uint16) for _ in range(2))
    return {
        "rgb": picture(rng, SIDE, SIDE),
        "segment_semantic": labels,
        "depth_zbuffer": depth,
        "keypoints2d": keypoints,
        "edge_texture": edges,
        "normal": normal,
    }


def path_of(root: Path, building: str, domain: str, point: int, view: int) -> Path:
    return root / building / domain / f"point_{point}_view_{view}_domain_{domain}.png"


def write(folder: Path) -> Path:
    """The five buildings, and a domain and a building nobody asked for."""
    root, rng = folder / "taskonomy", np.random.default_rng(0)
    for building in (*BUILDINGS, "wiconisco"):
        for point, view in VIEWS:
            for domain, pixels in views_of(rng).items():
                save(path_of(root, building, domain, point, view), pixels)
        save(path_of(root, building, "edge_occlusion", 0, 0), np.zeros((SIDE, SIDE), np.uint16))
    return root
