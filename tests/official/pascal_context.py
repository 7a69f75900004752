"""PASCAL-Context as it is in common use, small and drawn from a fixed generator."""

from pathlib import Path
from typing import Any

import numpy as np
from image_sets import picture, save
from PIL import Image
from scipy.io import savemat

HEIGHT, WIDTH = 40, 60
TRAIN = [f"2008_{number:06d}" for number in range(2, 20)]
VAL = [f"2010_{number:06d}" for number in range(1, 5)]


def person(parts: dict[str, np.ndarray], number: int = 15) -> dict[str, Any]:
    """One object as PASCAL-Part's annotation has it."""
    names = np.empty((1, len(parts)), [("part_name", object), ("mask", object)])
    for column, (name, mask) in enumerate(parts.items()):
        names[0, column] = (name, mask.astype(np.uint8))
    mask = np.any([*parts.values(), np.zeros((HEIGHT, WIDTH), bool)], axis=0).astype(np.uint8)
    return {"class": "person", "class_ind": number, "mask": mask, "parts": names if parts else np.zeros((0, 0))}


def save_parts(path: Path, objects: list[dict[str, Any]]) -> None:
    fields = np.empty((1, len(objects)), [(name, object) for name in ("class", "class_ind", "mask", "parts")])
    for column, its in enumerate(objects):
        fields[0, column] = (its["class"], its["class_ind"], its["mask"], its["parts"])
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"anno": {"imname": path.stem, "objects": fields}})


def box(top: int, left: int, bottom: int, right: int) -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[top:bottom, left:right] = True
    return mask


HEAD, HAND = box(0, 0, 10, 10), box(10, 20, 20, 40)


def write(folder: Path) -> Path:
    root, rng = folder / "pascal_context", np.random.default_rng(0)
    for number, id in enumerate([*TRAIN, *VAL]):
        save(root / "JPEGImages" / f"{id}.jpg", picture(rng, HEIGHT, WIDTH))
        labels = rng.choice([*range(21), 255], (HEIGHT, WIDTH)).astype(np.uint8)
        indexed = Image.new("P", (WIDTH, HEIGHT))
        indexed.putdata(labels.ravel().tolist())
        indexed.putpalette(rng.integers(0, 256, 768).tolist())  # the colours of VOC's palette images mean nothing
        folder = root / "semseg" / ("VOC12" if number % 2 else "pascal-context")
        folder.mkdir(parents=True, exist_ok=True)
        indexed.save(folder / f"{id}.png")
        people = [person({"head": HEAD, "lhand": HAND}), person({}), person({"tail": HEAD}, number=12)]
        save_parts(root / "human_parts" / f"{id}.mat", people if number % 3 else people[1:])
        save(root / "sal_distill" / f"{id}.png", rng.integers(0, 256, (HEIGHT, WIDTH)).astype(np.uint8))
        normal = rng.choice(np.array([[255, 127, 127], [127, 127, 0], [127, 127, 127]], np.uint8), (HEIGHT, WIDTH))
        save(root / "normals_distill" / f"{id}.png", normal)
        context = np.kron(rng.integers(1, 460, (4, 6)), np.ones((10, 10), int)).astype(np.uint16)
        context[:10, :10] = 360
        (root / "pascal-context" / "trainval").mkdir(parents=True, exist_ok=True)
        savemat(root / "pascal-context" / "trainval" / f"{id}.mat", {"LabelMap": context})
    for part, ids in (("train", TRAIN), ("val", VAL)):
        path = root / "ImageSets" / "Context" / f"{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{id}\n" for id in ids))
    return root
