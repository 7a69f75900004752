"""CIFAR-100: small pictures of a hundred classes, or of their twenty superclasses."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mtlscale.config import UserError, knob
from pipelines._formats.cifar import BINARY, contents, holds, records
from pipelines._images.classification_images import PictureSet, SplitImages, numbered

FOLDERS = ("cifar-100-binary", "cifar-100-python")
OFFICIAL_SPLITS = ("train", "test")
COARSE = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
)  # fmt: skip
FINE = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip


class Cifar100(PictureSet):
    """CIFAR-100 (Krizhevsky 2009): 50,000 pictures of 100 classes for training and 10,000 for test, 32x32 pixels.

    The source is the official binary version (`cifar-100-binary` or its archive), a set of the `datasets` library, or
    pictures in `{train,test}/<class>`, as a folder or a zip; torchvision's pickles are refused. `labels: coarse` takes
    the twenty superclasses. `ood` works as for cifar10.
    """

    name: ClassVar[str] = "cifar100"
    source: ClassVar[str] = "Krizhevsky 2009; www.cs.toronto.edu/~kriz/cifar.html"
    folder: ClassVar[str] = "cifar100"
    archives: ClassVar[tuple[str, ...]] = ("cifar-100-binary.tar.gz",)
    official_names: ClassVar[tuple[str, ...]] = FOLDERS
    shape: ClassVar[tuple[int, ...]] = (32, 32, 3)

    labels: str = knob("fine", choices=("fine", "coarse"), help="the hundred classes, or the twenty above them")

    @property
    def names(self) -> tuple[str, ...]:
        return FINE if self.labels == "fine" else COARSE

    @property
    def hub_labels(self) -> tuple[str, ...]:
        return ("fine_label", "label", "labels") if self.labels == "fine" else ("coarse_label",)

    def official(self, source: Path) -> Path | None:
        return next((folder for name in ("", *FOLDERS) if holds(folder := source / name, OFFICIAL_SPLITS)), None)

    def official_files(self) -> tuple[str, ...]:
        return tuple(f"{part}{BINARY}" for part in OFFICIAL_SPLITS)

    def read(self, source: Path, part: str) -> SplitImages | None:
        files = contents(self.name, source, OFFICIAL_SPLITS)
        if not files:
            return None

        file = f"{part}{BINARY}"
        if part not in files:
            raise UserError(f"{self.name}: {file} is missing in {source}; fetch it again")
        both, pictures = records(self.name, file, files[part], 2)
        return SplitImages(numbered(part, len(both)), both[:, ("coarse", "fine").index(self.labels)], pictures)
