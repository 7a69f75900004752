"""CityScapes' official folders, small and drawn from a fixed generator."""

from pathlib import Path

import numpy as np
from image_sets import picture, save

HEIGHT, WIDTH = 64, 128  # the real ones are 16 times as large
FOLDERS = {
    "leftImg8bit": "leftImg8bit",
    "gtFine": "gtFine_labelIds",
    "disparity": "disparity",
}


def path_of(root: Path, folder: str, part: str, stem: str) -> Path:
    return root / folder / part / stem.split("_")[0] / f"{stem}_{FOLDERS[folder]}.png"


def stems(part: str) -> list[str]:
    cities = {"train": ("aachen", "bochum"), "val": ("frankfurt",)}[part]
    return [f"{city}_{sequence:06d}_000019" for city in cities for sequence in range(9)]


def write(folder: Path) -> Path:
    """The official folders: colour, label ids and 16-bit disparity; other files of gtFine beside them."""
    root, rng = folder / "cityscapes", np.random.default_rng(0)
    for part in ("train", "val"):
        for stem in stems(part):
            save(path_of(root, "leftImg8bit", part, stem), picture(rng, HEIGHT, WIDTH))
            labels = np.kron(rng.integers(0, 34, (8, 16)), np.ones((8, 8), int)).astype(np.uint8)
            path = path_of(root, "gtFine", part, stem)
            save(path, labels)
            save(path.with_name(f"{stem}_gtFine_instanceIds.png"), labels.astype(np.uint16))
            disparity = rng.integers(0, 20_000, (HEIGHT, WIDTH)).astype(np.uint16)
            disparity[:4, :], disparity[4:8, :] = 0, 1
            save(path_of(root, "disparity", part, stem), disparity)
    return root
