"""The class names of NYUv2's two usual label sets, and the mapping of the 40 classes to the 13."""

from __future__ import annotations

CLASSES_13 = (
    "bed",
    "books",
    "ceiling",
    "chair",
    "floor",
    "furniture",
    "objects",
    "picture",
    "sofa",
    "table",
    "tv",
    "wall",
    "window",
)
CLASSES_40 = (
    "wall",
    "floor",
    "cabinet",
    "bed",
    "chair",
    "sofa",
    "table",
    "door",
    "window",
    "bookshelf",
    "picture",
    "counter",
    "blinds",
    "desk",
    "shelves",
    "curtain",
    "dresser",
    "pillow",
    "mirror",
    "floor mat",
    "clothes",
    "ceiling",
    "books",
    "refrigerator",
    "television",
    "paper",
    "towel",
    "shower curtain",
    "box",
    "whiteboard",
    "person",
    "night stand",
    "toilet",
    "sink",
    "lamp",
    "bathtub",
    "bag",
    "otherstructure",
    "otherfurniture",
    "otherprop",
)
# The class among the 13 of each of the 40, as in the published 13-class label maps.
# fmt: off
TO_13 = (
    11, 4, 5, 0, 3, 8, 9, 11, 12, 5, 7, 5, 12, 9, 5, 12, 5, 6, 6, 4,
    6, 2, 1, 5, 10, 6, 6, 6, 6, 6, 6, 5, 6, 6, 6, 6, 6, 6, 5, 6,
)
# fmt: on
